"""Jobs that lose ranks, workers or the coordinator go on from a checkpoint, and no bit of their result knows."""

import os
import pathlib
import signal
import unittest

from tests.support import cluster as support

ENDS = {"failed", "succeeded", "cancelled"}
KEPT = "checkpoint: {every: 10, keep: 2}\n"


class Recovery(unittest.TestCase):
    def setUp(self):
        self.cluster = support.Cluster(2).__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        corpus = self.cluster.folder / "long.txt"
        corpus.write_bytes(b"".join(b"%d bottles of beer on the wall. " % n for n in range(40_000)))
        self.shape = dict(pipeline=2, steps=400, corpus=corpus)

    def uninterrupted(self):
        name = self.cluster.submit(name="whole", **self.shape)
        return self.cluster.wait_for_state(name, ENDS, 120)

    def running_with_checkpoints(self, **changes):
        name = self.cluster.submit(name="kept", **{**self.shape, "extra": KEPT, **changes})
        support.wait_until(lambda: self.cluster.job(name)["durable_step"] >= 20, 60, "checkpoints are kept")
        return name

    def expect_same_result(self, name, whole, attempts):
        ended = self.cluster.wait_for_state(name, ENDS, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        self.assertEqual(ended["attempt"], attempts)
        self.assertEqual(ended["weights_digest"], whole["weights_digest"])
        losses = [self.cluster.job_message(job).losses for job in (name, whole["name"])]
        self.assertEqual(len(losses[0]), 400)
        self.assertEqual(losses[0], losses[1])
        return ended

    def reasons(self, name):
        return [event.reason for event in self.cluster.job_message(name).events]

    def test_killed_executor_and_killed_daemon_cost_no_step(self):
        whole = self.uninterrupted()
        name = self.running_with_checkpoints()
        os.kill(self.cluster.worker("worker-1")["executor_pid"], signal.SIGKILL)
        support.wait_until(lambda: self.cluster.job(name)["attempt"] == 2, 30, "there is a second attempt")
        self.cluster.wait_for_state(name, {"running", *ENDS}, 30)
        self.cluster.kill("worker-0")
        self.cluster.processes["worker-0"].wait()
        self.cluster.start_worker("worker-0")
        self.expect_same_result(name, whole, 3)
        said = "\n".join(self.reasons(name))
        self.assertRegex(said, r"attempt 1: rank \d on worker-1 failed")
        self.assertRegex(said, r"attempt 2: rank \d was lost in step \d+: worker worker-0")
        self.assertRegex(said, r"goes on from the checkpoint of step \d+")

    def test_restarted_coordinator_goes_on_and_passes_over_a_damaged_checkpoint(self):
        whole = self.uninterrupted()
        name = self.running_with_checkpoints()
        address = self.cluster.address
        self.cluster.kill("coordinator")
        self.cluster.processes["coordinator"].wait()
        directory = self.cluster.state / "jobs" / name / "checkpoints"
        newest = max(directory.glob("step-*"))
        shard = newest / "moments-00001-of-00002.safetensors"
        damaged = bytearray(shard.read_bytes())
        damaged[-1] ^= 1
        shard.write_bytes(damaged)
        self.cluster.start_coordinator(address)
        self.expect_same_result(name, whole, 2)
        said = "\n".join(self.reasons(name))
        self.assertIn("the coordinator was restarted", said)
        self.assertRegex(said, rf"a checkpoint is not used: {shard}: tensor exp_avg_sq\S+ at offset \d+")
        self.assertRegex(said, r"goes on from the checkpoint of step \d+")

    def test_paused_job_goes_on_cut_otherwise(self):
        whole = self.uninterrupted()
        name = self.running_with_checkpoints()
        paused = self.cluster.run("pause", name)
        self.assertEqual(paused.returncode, 0, paused.stderr)
        self.assertIn(f"job/{name} draining", paused.stdout)
        job = self.cluster.wait_for_state(name, "paused", 30)
        self.assertEqual(job["reason"], f"paused, with a checkpoint of step {job['durable_step']}")
        self.cluster.wait_for_workers(2)
        other = self.cluster.write_job(**{**self.shape, "name": "kept", "extra": KEPT, "lr": 2e-2})
        refused = self.cluster.run("resume", name, "--with", other)
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertRegex(refused.stderr, r"train.optimizer.lr: expected 0.01, as the job has it, found 0.02")
        alone = self.cluster.write_job(**{**self.shape, "name": "kept", "extra": KEPT, "pipeline": 1,
                                          "schedule": "gpipe"})
        resumed = self.cluster.run("resume", name, "--with", alone)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.expect_same_result(name, whole, 2)
        self.assertEqual(self.cluster.run("pause", name).returncode, 1)

    def test_pause_resume_and_export_may_follow_one_another_at_once(self):
        # resume waits until the job has drained. All are kept, so that none is removed while it is exported.
        all_kept = "checkpoint: {every: 10, keep: 40}\n"
        name = self.running_with_checkpoints(extra=all_kept)
        alone = self.cluster.write_job(**{**self.shape, "name": "kept", "extra": all_kept, "pipeline": 1,
                                          "schedule": "gpipe"})
        out = self.cluster.folder / "out"
        for command in (["pause", name], ["resume", name, "--with", alone], ["checkpoint", "export", name, out],
                        ["checkpoint", "verify", out]):
            result = self.cluster.run(*command)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.cluster.wait_for_state(name, ENDS, 120)["state"], "succeeded")

    def test_checkpoints_are_folders_that_the_other_commands_take(self):
        name = self.running_with_checkpoints(steps=60)
        ended = self.cluster.wait_for_state(name, ENDS, 60)
        self.assertEqual(ended["durable_step"], 60)
        listed = [one for one in self.cluster.json("checkpoint", "list") if one["job"] == name]
        self.assertEqual([one["step"] for one in listed], [50, 60, 60])
        self.assertEqual(listed[1]["weights_digest"], ended["weights_digest"])
        folder = pathlib.Path(listed[0]["directory"])
        found = self.cluster.json("checkpoint", "verify", folder)
        self.assertEqual((found["step"], found["weights_digest"]), (50, listed[0]["weights_digest"]))
        exported = self.cluster.json("checkpoint", "export", folder, self.cluster.folder / "out")
        self.assertEqual(exported["weights_digest"], listed[0]["weights_digest"])
        shard = folder / "moments-00000-of-00002.safetensors"
        shard.write_bytes(shard.read_bytes()[:-4])
        result = self.cluster.run("checkpoint", "verify", folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn(str(shard), result.stderr)

    def test_another_job_goes_on_with_a_checkpoint_cut_otherwise(self):
        name = self.running_with_checkpoints(steps=60)
        ended = self.cluster.wait_for_state(name, ENDS, 60)
        directory = pathlib.Path(ended["checkpoints_directory"])
        before = {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
        cut = {**self.shape, "name": "more", "steps": 60, "pipeline": 1, "schedule": "gpipe"}
        more = self.cluster.submit(**{**cut, "extra": f"restart: {{from: {directory / 'step-000000050'}}}\n"})
        result = self.cluster.wait_for_state(more, ENDS, 60)
        self.assertEqual(result["state"], "succeeded", result["reason"])
        self.assertEqual((result["first_step"], result["step"]), (50, 60))
        self.assertEqual(result["weights_digest"], ended["weights_digest"])
        losses = [self.cluster.job_message(job).losses for job in (name, more)]
        self.assertEqual(losses[1], losses[0][50:])
        self.assertIn(f"begins with the checkpoint of step 50 of job {name}", "\n".join(self.reasons(more)))
        # By the job's name: its newest. What differs is said.
        longer = self.cluster.write_job(**{**cut, "steps": 80, "extra": f"restart: {{from: {name}}}\n"})
        submitted = self.cluster.run("submit", longer, "--follow")
        self.assertEqual(submitted.returncode, 0, submitted.stderr)
        self.assertIn(f"goes on from step 60 of job {name}", submitted.stdout)
        self.assertIn("otherwise than that job: train.steps: 60 there, 80 here", submitted.stdout)
        after = {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
        self.assertEqual(before, after)
        refused = self.cluster.run("submit", self.cluster.write_job(
            **{**cut, "extra": f"restart: {{from: {directory / 'step-000000060'}}}\n"}))
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, r"line \d+: train.steps: expected more than the 60 steps")

    def test_imported_folder_and_export_with_the_optimizer_are_gone_on_from(self):
        name = self.running_with_checkpoints(steps=60)
        ended = self.cluster.wait_for_state(name, ENDS, 60)
        step_50 = pathlib.Path(ended["checkpoints_directory"]) / "step-000000050"
        whole, again = self.cluster.folder / "whole", self.cluster.folder / "again"
        exported = self.cluster.json("checkpoint", "export", step_50, whole, "--optimizer", "--shard-bytes", "100000")
        self.assertEqual(exported["step"], 50)
        self.assertGreater(exported["files"], 4)
        imported = self.cluster.json("checkpoint", "import", whole, again)
        self.assertEqual((imported["step"], imported["weights_digest"]), (50, exported["weights_digest"]))
        more = self.cluster.submit(**{**self.shape, "name": "more", "steps": 60,
                                      "extra": f"restart: {{from: {again}}}\n"})
        result = self.cluster.wait_for_state(more, ENDS, 60)
        self.assertEqual(result["weights_digest"], ended["weights_digest"], result["reason"])
        # Weights alone: a checkpoint of step 0, which trains as model.from does.
        plain, zero = self.cluster.folder / "plain", self.cluster.folder / "zero"
        self.cluster.json("checkpoint", "export", name, plain)
        self.assertEqual(self.cluster.json("checkpoint", "import", plain, zero)["step"], 0)
        self.assertTrue(self.cluster.json("checkpoint", "verify", zero)["valid"])
        self.assertEqual(self.cluster.run("checkpoint", "import", plain, zero).returncode, 1)
        began = self.cluster.submit(**{**self.shape, "name": "began", "steps": 5,
                                       "extra": f"restart: {{from: {zero}}}\n"})
        result = self.cluster.wait_for_state(began, ENDS, 60)
        self.assertEqual((result["state"], result["first_step"]), ("succeeded", 0), result["reason"])
        self.assertEqual(len(self.cluster.job_message(began).losses), 5)
        refused = self.cluster.run("checkpoint", "export", plain, self.cluster.folder / "none", "--optimizer")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("weights alone, without an optimizer's state", refused.stderr)

    def test_job_that_fails_again_and_again_ends_as_no_progress(self):
        name = self.cluster.submit(**{**self.shape, "corpus": self.cluster.folder / "absent.txt",
                                      "extra": "checkpoint: {every: 10}\nrestart: {max: 5, no_progress_limit: 2}\n"})
        ended = self.cluster.wait_for_state(name, ENDS, 60)
        self.assertEqual(ended["state"], "failed")
        self.assertEqual(ended["attempt"], 2)
        self.assertIn("absent.txt", ended["reason"])
        self.assertIn("no_progress_limit", ended["reason"])
        self.assertEqual(self.cluster.job_message(name).exit_code, 4)

    def test_checkpoints_of_an_earlier_job_are_not_gone_on_from(self):
        folder = self.cluster.folder / "run"
        extra = f"checkpoint: {{directory: {folder}, every: 5}}\n"
        first = self.cluster.submit(**{**self.shape, "steps": 10, "extra": extra})
        self.assertEqual(self.cluster.wait_for_state(first, ENDS, 60)["state"], "succeeded")
        self.assertTrue((folder / "step-000000010" / "manifest.json").exists())
        again = self.cluster.submit(**{**self.shape, "steps": 10, "extra": extra})
        ended = self.cluster.wait_for_state(again, ENDS, 60)
        self.assertEqual(ended["state"], "failed")
        self.assertRegex(ended["reason"], rf"{folder}: expected a checkpoint.directory without checkpoints")


if __name__ == "__main__":
    unittest.main()
