"""Weights from outside: trained, kept, exported, verified, and trained on from."""

import json
import pathlib
import re
import shutil
import unittest

from tests.support import cluster as support

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "hugging_face"
ENDS = {"succeeded", "failed", "cancelled"}


def job_from(cluster, folder, *, model="", pipeline=2, steps=1, lr=0):
    """A job file that starts from `folder`; with lr 0 its final weights are those that it started from."""
    text = support.job_yaml(cluster.folder, name="from", pipeline=pipeline, steps=steps, lr=lr)
    text = re.sub(r"model: \{.*?\}", f"model: {{from: {folder}{model}}}", text, flags=re.DOTALL)
    path = cluster.folder / f"job-{len(list(cluster.folder.glob('job-*.yaml')))}.yaml"
    path.write_text(text)
    return path


class Checkpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(2).__enter__()
        cls.folder = cls.cluster.folder
        cls.trained = cls.cluster.wait_for_state(cls.cluster.submit(pipeline=2, steps=3), ENDS, 60)
        assert cls.trained["state"] == "succeeded", cls.trained["reason"]
        cls.weights = pathlib.Path(cls.trained["weights_directory"])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def checkpoint(self, *arguments):
        return self.cluster.json("checkpoint", *arguments)

    def run_to_end(self, path):
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        name = re.search(r"job/([a-z0-9-]+)", result.stdout).group(1)
        return self.cluster.wait_for_state(name, ENDS, 60)

    def test_finished_job_leaves_a_hugging_face_folder_with_its_digest(self):
        self.assertEqual(sorted(path.name for path in self.weights.iterdir()), [
            "config.json", "model.safetensors.index.json", "rank-00000-of-00002.safetensors",
            "rank-00001-of-00002.safetensors"])
        self.assertEqual(self.weights, self.cluster.state / "jobs" / self.trained["name"] / "weights")
        found = self.checkpoint("verify", self.weights)
        self.assertTrue(found["valid"])
        self.assertEqual(found["weights_digest"], self.trained["weights_digest"])
        self.assertEqual(self.checkpoint("verify", self.trained["name"]), found)  # by the job's name
        names = json.loads((self.weights / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(names["model.layers.5.mlp.down_proj.weight"], "rank-00001-of-00002.safetensors")
        self.assertIn(str(self.weights), self.cluster.run("describe", "job", self.trained["name"]).stdout)
        self.assertIn(self.trained["weights_digest"], self.cluster.run("checkpoint", "list").stdout)

    def test_job_that_starts_from_exported_weights_starts_with_their_bits(self):
        """At another split, from one file and from shards."""
        for out, flags in (("one", []), ("shards", ["--shard-bytes", "50000"])):
            exported = self.checkpoint("export", self.trained["name"], self.folder / out, *flags)
            self.assertEqual(exported["weights_digest"], self.trained["weights_digest"])
            self.assertEqual(exported["files"] > 1, out == "shards")
            self.assertEqual(self.checkpoint("verify", self.folder / out)["weights_digest"],
                             self.trained["weights_digest"])
            ended = self.run_to_end(job_from(self.cluster, self.folder / out, pipeline=1))
            self.assertEqual(ended["state"], "succeeded", ended["reason"])
            self.assertEqual(ended["weights_digest"], self.trained["weights_digest"])

    def test_training_goes_on_from_where_it_was(self):
        ended = self.run_to_end(job_from(self.cluster, self.weights, steps=3, lr=1e-2))
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        self.assertNotEqual(ended["weights_digest"], self.trained["weights_digest"])
        fresh = self.cluster.job_message(self.trained["name"]).losses
        self.assertLess(self.cluster.job_message(ended["name"]).losses[0], fresh[0])

    def test_weights_of_transformers_are_trained_from(self):
        for fixture in ("llama", "sharded", "deep", "qwen3"):
            digest = self.checkpoint("verify", FIXTURES / fixture)["weights_digest"]
            ended = self.run_to_end(job_from(self.cluster, FIXTURES / fixture))
            self.assertEqual(ended["state"], "succeeded", ended["reason"])
            self.assertEqual(ended["weights_digest"], digest)

    def test_bfloat16_export_is_the_rounded_weights(self):
        exported = self.checkpoint("export", self.weights, self.folder / "half", "--dtype", "bfloat16")
        self.assertNotEqual(exported["weights_digest"], self.trained["weights_digest"])
        self.assertEqual(self.checkpoint("verify", self.folder / "half")["weights_digest"],
                         exported["weights_digest"])
        self.assertLess((self.folder / "half" / "model.safetensors").stat().st_size * 1.9,
                        sum(path.stat().st_size for path in self.weights.glob("rank-*")))

    def test_job_file_that_contradicts_the_folder_is_refused_with_its_line(self):
        result = self.cluster.run("submit", job_from(self.cluster, self.weights, model=", hidden_size: 64"))
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"line 2: model.hidden_size: expected 32, as .*/config.json says, found 64")
        result = self.cluster.run("submit", job_from(self.cluster, self.folder / "none"))
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"model.from: {self.folder}/none/config.json", result.stderr)

    def test_damage_is_told_by_file_and_tensor_before_the_first_step(self):
        """At submit where the client sees it, and by the rank where only it does."""
        broken = self.folder / "broken"
        shutil.copytree(self.weights, broken)
        path = job_from(self.cluster, broken)
        rank = broken / "rank-00001-of-00002.safetensors"
        whole = rank.read_bytes()
        rank.write_bytes(whole[:-4])
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 2)
        self.assertIn(str(rank), result.stderr)
        self.assertEqual(self.cluster.run("checkpoint", "verify", broken).returncode, 1)
        rank.write_bytes(whole)
        self.assertEqual(self.cluster.run("submit", path, "--dry-run").returncode, 0)
        rank.write_bytes(whole[:-4] + b"\xff\xff\xff\x7f")  # a NaN
        result = self.cluster.run("checkpoint", "verify", broken)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, rf"{rank}: tensor \S+: element \d+ at offset {len(whole) - 4}: expected a finite")

    def test_folder_that_the_workers_do_not_see_fails_the_job_with_host_and_path(self):
        """The file is read at submit; by the time that a rank looks, it has gone."""
        gone = self.folder / "gone"
        shutil.copytree(self.weights, gone)
        blocker = self.cluster.submit(name="blocker", pipeline=2, steps=2000)
        result = self.cluster.run("submit", job_from(self.cluster, gone))
        name = re.search(r"job/([a-z0-9-]+)", result.stdout).group(1)
        shutil.rmtree(gone)
        self.cluster.run("cancel", blocker)
        ended = self.cluster.wait_for_state(name, ENDS, 60)
        self.assertEqual(ended["state"], "failed")
        self.assertRegex(ended["reason"], rf"rank \d on worker-\d failed before its first step: on host \S+: {gone}")
        self.assertIsNone(ended["weights_directory"])
        cancelled = self.cluster.wait_for_state(blocker, ENDS, 30)
        self.assertFalse((self.cluster.state / "jobs" / blocker / "weights" / "config.json").exists())
        self.assertIsNone(cancelled["weights_directory"])

    def test_export_overwrites_nothing(self):
        target = self.folder / "taken"
        target.mkdir()
        (target / "mine.txt").write_text("mine")
        result = self.cluster.run("checkpoint", "export", self.weights, target)
        self.assertEqual(result.returncode, 1)
        self.assertIn("expected a new or empty folder", result.stderr)
        self.assertEqual([path.name for path in target.iterdir()], ["mine.txt"])

    def test_import_prints_a_model_section_that_a_job_takes(self):
        section = self.cluster.run("checkpoint", "import", self.weights)
        self.assertEqual(section.returncode, 0, section.stderr)
        self.assertIn("hidden_size: 32", section.stdout)
        text = re.sub(r"model: \{.*?\}\n", lambda _: section.stdout, support.job_yaml(self.folder), flags=re.DOTALL)
        path = self.folder / "imported.yaml"
        path.write_text(text)
        result = self.cluster.run("submit", path, "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_job_without_weights_is_told_by_its_state(self):
        result = self.cluster.run("checkpoint", "verify", "nobody")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nobody", result.stderr)


if __name__ == "__main__":
    unittest.main()
