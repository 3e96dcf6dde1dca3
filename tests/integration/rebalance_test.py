"""A job tells what its stages took, gets a better split out of it, and loses no bit by going on with that."""

import json
import os
import pathlib
import re
import signal
import unittest

from tests.support import cluster as support

ENDS = {"succeeded", "failed", "cancelled"}
ROOT = pathlib.Path(__file__).resolve().parents[2]
IMBALANCED = ROOT / "deploy/jobs/imbalanced.yaml"


def commands_of_readme(section):
    """The first block of commands of a section, without `penstock` and remarks."""
    text = (ROOT / "README.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    block = re.search(r"(?:^    .*\n)+", text, re.MULTILINE).group(0)
    return [re.sub(r"\s+#.*", "", line).strip().removeprefix("penstock ") for line in block.splitlines()]


def blocks_of(split):
    """Blocks in every stage of a split as text: "[[embedding, 0], [1, head]]" -> [1, 1]."""
    return [sum(item.strip().isdigit() for item in stage.split(",")) for stage in re.findall(r"\[([^\[\]]+)\]", split)]


class EmulatedPipeline(unittest.TestCase):
    """Eight ranks whose costs are known: two blocks a stage, and a head of three and a half blocks on top of the last one's."""

    RANKS = 8
    LAYERS = ("{embedding: {forward: 0.3, backward: 0.6}, block: {forward: 3, backward: 6}, "
              "head: {forward: 10.5, backward: 21}}")

    def setUp(self):
        self.cluster = support.Cluster(0).__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.cluster.start_worker("devices", "--device", "emulated", "--devices", self.RANKS)
        self.cluster.wait_for_workers(self.RANKS)

    def job_file(self):
        text = support.job_yaml(self.cluster.folder, corpus="/there/is/no/such/file.txt", name="uneven", layers=14,
                                pipeline=self.RANKS, split="ends-lighter", steps=12, microbatch_size=1, global_batch_size=16)
        path = self.cluster.folder / "uneven.yaml"
        path.write_text(re.sub(r"(?m)^device: .*$",
                               f"device: {{kind: emulated, costs: {{layers: {self.LAYERS}}}}}", text))
        return path

    def run_job(self, path):
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        name = re.search(r"job/(\S+)", result.stdout).group(1)
        job = self.cluster.wait_for_state(name, ENDS, 120)
        self.assertEqual(job["state"], "succeeded", job["reason"])
        return name

    def test_a_stage_that_sticks_out_is_seen_and_one_rebalance_is_enough(self):
        name = self.run_job(self.job_file())
        curves = self.cluster.json("curves", name)
        slowest = max(curves["stages"], key=lambda stage: stage["measured_ms"])
        self.assertEqual(slowest["stage"], self.RANKS - 1)
        mean = sum(stage["measured_ms"] for stage in curves["stages"]) / self.RANKS
        self.assertGreater(slowest["measured_ms"], 1.5 * mean)
        self.assertEqual(curves["planned"], "device.costs")
        self.assertAlmostEqual(slowest["measured_ms"] / slowest["planned_ms"], 1, delta=0.1)
        for rank in curves["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_bytes"])
        self.assertIn("the slowest stage, 7,", self.cluster.run("curves", name).stdout)
        self.assertTrue(self.cluster.run("curves", name, "-o", "svg").stdout.startswith("<svg"))

        diagnosis = self.cluster.json("diagnose", name)
        self.assertEqual(diagnosis["verdict"], "imbalance")
        self.assertEqual(diagnosis["where"]["stage"], self.RANKS - 1)
        self.assertIn("because", diagnosis["memory"])

        proposal = self.cluster.json("rebalance", name)
        self.assertEqual(proposal["answer"], "move", proposal["because"])
        self.assertLess(proposal["best_step_seconds"], 0.9 * proposal["step_seconds"])
        # The head's stage keeps no block: three and a half of them are its fair share already.
        self.assertEqual(blocks_of(proposal["split"])[-1], 0)
        self.assertEqual(sum(blocks_of(proposal["split"])), 14)

        moved = self.cluster.folder / "moved.yaml"
        moved.write_text(self.cluster.run("rebalance", name, "-o", "job").stdout)
        again = self.run_job(moved)
        second = self.cluster.json("rebalance", again)
        self.assertEqual(second["answer"], "stay", second["because"])
        steps = [self.cluster.json("curves", job)["step_seconds"] for job in (name, again)]
        print(f"\nP=8, emulated: a step took {steps[0]:.4f} s, {proposal['best_step_seconds']:.4f} s predicted, "
              f"{steps[1]:.4f} s measured ({steps[1] / proposal['best_step_seconds'] - 1:+.1%})")
        self.assertLess(steps[1], steps[0])

    def test_a_job_that_loses_a_rank_starts_again_with_the_split_that_it_should_have_had(self):
        path = self.job_file()
        path.write_text(path.read_text().replace("steps: 12", "steps: 30") + "rebalance: apply\nrestart: {max: 1}\n")
        submitted = self.cluster.run("submit", path)
        self.assertIn("nothing is moved before the job's next start", submitted.stdout)
        name = re.search(r"job/(\S+)", submitted.stdout).group(1)
        support.wait_until(lambda: self.cluster.job(name)["step"] >= 12, 60, "steps are measured")
        before = self.cluster.json("curves", name)["step_seconds"]
        os.kill(next(worker["executor_pid"] for worker in self.cluster.workers() if worker["rank"] == 3), signal.SIGKILL)
        ended = self.cluster.wait_for_state(name, ENDS, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        told = [event.reason for event in self.cluster.job_message(name).events if event.by == "rebalancer"]
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], "^goes on with another split: stages embedding .* in place of embedding ")
        blocks = [sum(item.isdigit() for item in stage["layers"]) for stage in ended["stages"]]
        self.assertEqual(blocks[-1], 0)
        self.assertEqual(sum(blocks), 14)
        self.assertLess(self.cluster.json("curves", name)["step_seconds"], 0.9 * before)

    def test_auto_plans_the_split_where_costs_are_known(self):
        path = self.job_file()
        path.write_text(path.read_text().replace("split: ends-lighter", "split: auto"))
        said = self.cluster.run("submit", path, "--dry-run").stdout
        self.assertIn("split: auto is planned from device.costs", said)
        self.assertIn("stage 7: head\n", said)

    def test_measurements_outlive_the_coordinator(self):
        name = self.run_job(self.job_file())
        before = self.cluster.json("curves", name)
        address = self.cluster.address
        self.cluster.processes["coordinator"].terminate()
        self.cluster.processes["coordinator"].wait(15)
        self.cluster.start_coordinator(address)
        self.assertEqual(self.cluster.json("curves", name), before)

    def test_costs_by_stage_and_jobs_that_nobody_knows_are_refused(self):
        text = self.job_file().read_text()
        stages = ", ".join("{forward: %d, backward: 5}" % (9 if rank == 7 else 2) for rank in range(self.RANKS))
        path = self.cluster.folder / "by-stage.yaml"
        path.write_text(re.sub(r"(?m)^device: .*$", f"device: {{kind: emulated, costs: {{stages: [{stages}]}}}}", text))
        name = self.run_job(path)
        refused = self.cluster.run("rebalance", name)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("expected costs by layer", refused.stderr)
        self.assertIn("uneven", self.cluster.run("curves", "unevn").stderr)


class BitsOfARebalancedJob(unittest.TestCase):
    """Two ranks; a job that moves by itself has nearly everything on the second, so that no noise of a busy machine hides what a
    move brings. When that is seen depends on the machine, so jobs are ended some steps later, and held against as many steps of
    one that stays."""

    STEPS_AFTER_A_MOVE = 60
    ASK_EVERY = 40  # steps
    LOOKS = 5
    losses_of_whole = []

    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(2).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)

    def submit(self, name, rebalance="off"):
        text = support.job_yaml(self.cluster.folder, name=name, pipeline=2, layers=8, hidden=128, steps=20000, sequence=64,
                                microbatch_size=1, global_batch_size=8, data=", epochs: 0",
                                split="[[embedding, 0], [1, 2, 3, 4, 5, 6, 7, head]]",
                                extra=f"checkpoint: {{every: 50, keep: 1}}\nrebalance: {rebalance}\n")
        path = self.cluster.folder / f"{name}.yaml"
        path.write_text(text.replace("vocab_size: 256", "vocab_size: 8192"))
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        submitted = re.search(r"job/(\S+)", result.stdout).group(1)
        self.addCleanup(self.cluster.run, "cancel", submitted)  # what fails must not keep the devices
        return submitted

    def wait_for_step(self, name, step):
        def reached():
            job = self.cluster.job(name)
            self.assertNotIn(job["state"], ENDS, job["reason"])
            return job["step"] >= step
        support.wait_until(reached, 300, lambda: f"step {step} of {name}: {self.cluster.job(name)}")

    def losses_of_ended(self, name):
        self.cluster.run("cancel", name)
        self.cluster.wait_for_state(name, "cancelled", 60)
        return list(self.cluster.job_message(name).losses)

    def assert_same_bits(self, losses):
        if len(self.losses_of_whole) < len(losses):
            whole = self.submit("whole")
            self.wait_for_step(whole, len(losses))
            type(self).losses_of_whole = self.losses_of_ended(whole)
        self.assertEqual(losses, self.losses_of_whole[:len(losses)])

    def blocks_of_stages(self, name):
        return [sum(item.isdigit() for item in stage["layers"]) for stage in self.cluster.job(name)["stages"]]

    def test_a_better_split_as_the_readme_has_it(self):
        """Its commands, one after the other, on deploy/jobs/imbalanced.yaml; the losses keep every bit."""
        up, submit, *commands = commands_of_readme("A better split")
        self.assertEqual((up, submit), ("up --workers 2", "submit deploy/jobs/imbalanced.yaml"))
        self.assertEqual(commands, ["curves imbalanced", "diagnose imbalanced", "rebalance imbalanced",
                                    "rebalance imbalanced --apply", "curves imbalanced", "rebalance imbalanced"])
        name = self.submit_imbalanced()
        self.assertEqual(name, "imbalanced")
        self.wait_for_step(name, 30)
        before = self.some_steps_later(name, lambda: self.above_mean(name, stage=1), "the last stage sticks out")
        self.assertIn("the slowest stage, 1,", self.say("curves", name))
        self.assertIn(self.cluster.json("diagnose", name)["memory"]["because"], self.say("diagnose", name))

        proposal = self.applied(name) or self.applied_by_hand(name)
        self.assertLess(proposal["best_step_seconds"], proposal["step_seconds"])
        moved_at = self.cluster.job(name)["step"]
        self.wait_for_step(name, moved_at + self.STEPS_AFTER_A_MOVE)
        self.assertEqual(self.cluster.job(name)["attempt"], 2)
        self.assertEqual(self.blocks_of_stages(name), blocks_of(proposal["split"]))
        self.assertEqual(self.cluster.json("curves", name)["planned"], "costs")
        after = self.some_steps_later(name, lambda: self.flatter(name, before), "the curve is flatter than it was")
        print(f"\nslowest stage above the mean: {before:.1%}, then {after:.1%}; a step: {proposal['step_seconds']:.4f} s, "
              f"{proposal['best_step_seconds']:.4f} predicted, {self.cluster.json('curves', name)['step_seconds']:.4f} measured")
        self.assertRegex(self.say("rebalance", name), "last move|% came of")

        losses = self.losses_of_ended(name)
        unmoved = self.submit_imbalanced()
        self.wait_for_step(unmoved, len(losses))
        self.assertEqual(losses, self.losses_of_ended(unmoved)[:len(losses)])

    def submit_imbalanced(self):
        """The file as it stands, on another text."""
        text = IMBALANCED.read_text()
        corpus = self.cluster.folder / "corpus.txt"
        corpus.write_text("".join(f"{n} bottles of beer on the wall, take one down. " for n in range(2000)))
        path = self.cluster.folder / IMBALANCED.name
        path.write_text(re.sub(r"source: [^,]+,", f"source: {corpus},", text))
        submitted = re.search(r"job/(\S+)", self.say("submit", path)).group(1)
        self.addCleanup(self.cluster.run, "cancel", submitted)
        return submitted

    def say(self, *command):
        result = self.cluster.run(*command)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def some_steps_later(self, name, look, what):
        """What `look` returns when that is something. It looks at once, and again some steps later."""
        found = []

        def looked():
            found.append(look())
            if found[-1] is None:
                self.wait_for_step(name, self.cluster.job(name)["step"] + self.ASK_EVERY)
            return found[-1] is not None
        support.wait_until(looked, 300, what)
        return found[-1]

    def above_mean(self, name, stage=None):
        """Of the slowest stage, as a part; nothing where it is another one than `stage`."""
        stages = self.cluster.json("curves", name)["stages"]
        slowest = max(stages, key=lambda each: each["measured_ms"])
        mean = sum(each["measured_ms"] for each in stages) / len(stages)
        return slowest["measured_ms"] / mean - 1 if stage in (None, slowest["stage"]) else None

    def flatter(self, name, before):
        after = self.above_mean(name)
        return after if after < before else None

    def applied(self, name):
        """The proposal that was applied; nothing where the machine is too crowded to tell that it pays."""
        for _ in range(self.LOOKS):
            self.wait_for_step(name, self.cluster.job(name)["step"] + self.ASK_EVERY)
            if not re.search("(?m)^move: ", self.say("rebalance", name)):
                continue
            found = self.cluster.run("rebalance", name, "--apply", "-o", "json", timeout=120)
            proposal = json.loads(found.stdout)  # newer steps may say otherwise
            self.assertEqual(found.returncode, 0 if proposal["answer"] == "move" else 5, found.stderr)
            if proposal["answer"] == "move":
                return proposal
        return None

    def applied_by_hand(self, name):
        proposal = self.cluster.json("rebalance", name)
        self.assertEqual(proposal["answer"], "stay", proposal["because"])
        print(f"\n{proposal['because']}")
        path = self.cluster.folder / "by-hand.yaml"
        path.write_text((self.cluster.folder / IMBALANCED.name).read_text().replace("ends-lighter", proposal["split"]))
        self.say("pause", name)
        self.cluster.wait_for_state(name, "paused", 300)
        self.say("resume", name, "--with", path)
        self.cluster.wait_for_state(name, "running", 120)
        return proposal

    def told_by_the_rebalancer(self, name, count):
        def told():
            job = self.cluster.job_message(name)
            said = [event.reason for event in job.events if event.by == "rebalancer"]
            return said if len(said) >= count else None
        return support.wait_until(told, 300, lambda: f"{count} words of the rebalancer: {self.cluster.job(name)}")

    def test_a_job_that_a_person_has_paused_is_left_alone(self):
        name = self.submit("paused")
        self.wait_for_step(name, 60)
        self.assertEqual(self.cluster.run("pause", name).returncode, 0)
        self.cluster.wait_for_state(name, "paused", 120)
        found = self.cluster.run("rebalance", name, "--apply", "-o", "json")
        self.assertEqual(self.cluster.job(name)["state"], "paused")
        stays = json.loads(found.stdout)["answer"] == "stay"
        self.assertEqual(found.returncode, 5 if stays else 1, found.stderr)
        if not stays:
            self.assertIn(f"`penstock resume {name} --with next.yaml`", found.stderr)

    def test_a_job_that_asks_for_it_moves_by_itself_and_tells_what_came_of_it(self):
        name = self.submit("by-itself", rebalance="apply")
        told = self.told_by_the_rebalancer(name, 2)
        print("\n" + "\n".join(told))
        self.assertRegex(told[0], r"^goes on with another split, from the checkpoint of step \d+: stages embedding 0-\d \| "
                                  r"\d(-\d)? head in place of embedding 0 \| 1-7 head; a step takes ")
        # Whether it pays is up to the machine; that it is judged by what came, and goes back where it did not, is not.
        kept = told[1].startswith("keeps the new split: ")
        came, predicted = map(float, re.search(r": (\S+) % came of (\S+) % predicted", told[1]).groups())
        if abs(came - predicted / 2) > 0.1:  # what is printed is rounded
            self.assertEqual(kept, came > predicted / 2, told[1])
        self.assertRegex(told[1], "^(keeps the new split|goes back to the split before, from the checkpoint of step)")
        if not kept:
            self.wait_for_step(name, self.cluster.job(name)["step"] + self.STEPS_AFTER_A_MOVE)
        job = self.cluster.job_message(name)  # which may have moved on since, to a third split
        self.assertGreaterEqual(job.attempt, 2 if kept else 3)
        self.assertEqual(job.restarts, 0)
        self.assertIn("goes on with another split", self.cluster.run("describe", "job", name).stdout)
        self.assert_same_bits(self.losses_of_ended(name))


if __name__ == "__main__":
    unittest.main()
