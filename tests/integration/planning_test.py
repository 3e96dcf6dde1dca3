"""Jobs that are planned before they run, from what a job like them measured, and lose no bit by it."""

import json
import re
import unittest

from tests.support import cluster as support

ENDS = {"succeeded", "failed", "cancelled"}


class PlannedFromAMeasuredJob(unittest.TestCase):
    def setUp(self):
        self.cluster = support.Cluster(2).__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def job_file(self, name, **changes):
        shape = dict(name=name, pipeline=2, layers=6, hidden=64, steps=16, microbatch_size=1, global_batch_size=8)
        path = self.cluster.folder / f"{name}.yaml"
        path.write_text(support.job_yaml(self.cluster.folder, **(shape | changes)).replace("vocab_size: 256", "vocab_size: 2048"))
        return path

    def run_job(self, path, *options):
        result = self.cluster.run("submit", path, *options)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        ended = self.cluster.wait_for_state(path.stem, ENDS, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        return result.stdout

    def test_a_measured_job_plans_the_next_one_which_keeps_every_bit(self):
        # Nearly all on the second rank: whatever the noise, the next job is cut otherwise.
        uneven = "[[embedding, 0], [1, 2, 3, 4, 5, head]]"
        self.run_job(self.job_file("before", split=uneven))

        plan = self.cluster.run("plan", self.job_file("asked"), "--profile", "before", "-o", "json")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        costs = json.loads(plan.stdout)["costs"]
        self.assertTrue(costs["measured"])
        self.assertRegex(costs["source"], r"measured runs of job before \(stages within [0-9.]+ % on average")

        said = self.run_job(self.job_file("after", schedule="auto"), "--profile", "job:before")
        self.assertIn("  schedule: auto is ", said)
        self.assertIn("  planned from measured runs of job before", said)
        self.assertNotIn("stage 0: embedding 0\n", said)
        before, after = (self.cluster.job_message(name) for name in ("before", "after"))
        self.assertEqual(list(before.losses), list(after.losses))
        self.assertEqual(before.weights_digest, after.weights_digest)
        # What was chosen stands in the job's own file, with the reason.
        self.assertRegex(after.spec_yaml, r"\n# schedule: auto is ")

    def test_two_sizes_of_microbatch_say_what_any_size_costs(self):
        for name, size in (("one", 1), ("four", 4)):
            self.run_job(self.job_file(name, microbatch_size=size))
        free = self.job_file("free", microbatch_size="auto")
        refused = self.cluster.run("submit", free, "--profile", "one")
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("ran with train.microbatch_size 1 alone", refused.stderr)
        other = self.cluster.run("plan", self.job_file("two", microbatch_size=2), "--profile", "one")
        self.assertEqual(other.returncode, 2, other.stdout)
        self.assertIn("measured with train.microbatch_size 1, found 2", other.stderr)

        profiles = ("--profile", "one", "--profile", "four")
        plan = json.loads(self.cluster.run("plan", free, *profiles, "-o", "json").stdout)
        self.assertEqual(sorted(size["microbatch_size"] for size in plan["microbatch_sizes"]), [1, 2, 4, 8])
        said = self.run_job(free, *profiles)
        self.assertRegex(said, r"  microbatch_size: auto is [1248]: a step of ")

    def test_what_cannot_plan_a_job_says_why(self):
        self.run_job(self.job_file("before"))
        for changes, why in (({"hidden": 32}, "measured with model.hidden_size 64, found 32"),
                             ({"dtype": "bfloat16"}, "measured with train.dtype float32, found bfloat16")):
            refused = self.cluster.run("plan", self.job_file("other", **changes), "--profile", "before")
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn("job before says nothing about this one: " + why, refused.stderr)
        nobody = self.cluster.run("plan", self.job_file("other"), "--profile", "nobody")
        self.assertEqual(nobody.returncode, 1, nobody.stdout)
        self.assertIn("--profile nobody: no such file, and as a job: ", nobody.stderr)


class PlannedFromAnEmulatedJob(unittest.TestCase):
    """Costs that are known exactly: what a profile predicts is what the next job takes."""

    LAYERS = ("{embedding: {forward: 1, backward: 2}, block: {forward: 5, backward: 10}, "
              "head: {forward: 20, backward: 40}}")

    def test_the_planned_step_is_the_measured_one(self):
        with support.Cluster(0) as cluster:
            cluster.start_worker("devices", "--device", "emulated", "--devices", 4)
            cluster.wait_for_workers(4)

            def job_file(name, **changes):
                shape = dict(name=name, corpus="/there/is/no/such/file.txt", layers=10, pipeline=4, steps=12,
                             microbatch_size=1, global_batch_size=8)
                path = cluster.folder / f"{name}.yaml"
                path.write_text(re.sub(r"(?m)^device: .*$", f"device: {{kind: emulated, costs: {{layers: {self.LAYERS}}}}}",
                                       support.job_yaml(cluster.folder, **(shape | changes))))
                return path

            steps = {}
            for name, changes in (("before", {"split": "ends-lighter"}), ("after", {"schedule": "auto"})):
                options = ("--profile", "before") if name == "after" else ()
                result = cluster.run("submit", job_file(name, **changes), *options)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                ended = cluster.wait_for_state(name, ENDS, 120)
                self.assertEqual(ended["state"], "succeeded", ended["reason"])
                steps[name] = 1e3 * cluster.json("curves", name)["step_seconds"]
            predicted = float(re.search(r"schedule: auto is .*?: a step of ([0-9.]+) ms", result.stdout).group(1))
            print(f"\nP=4, emulated: a step took {steps['before']:.1f} ms; planned from it {predicted:.1f} ms, "
                  f"measured {steps['after']:.1f} ms ({steps['after'] / predicted - 1:+.1%})")
            self.assertLess(steps["after"], steps["before"])


if __name__ == "__main__":
    unittest.main()
