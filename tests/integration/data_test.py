"""A person's own text, from words to a trained model: penstock data prepare, inspect, and jobs on what they make."""

import json
import pathlib
import re
import struct
import unittest

from tests.support import cluster as support


class OwnTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(2).__enter__()
        cls.folder = cls.cluster.folder
        for name, words in (("a", "bottles of beer on the wall"), ("b", "sheep that jump over a fence")):
            text = "".join(f"{n} {words}, count one more of the {n % 17} {words[:6]}.\n" for n in range(1500))
            (cls.folder / f"{name}.txt").write_text(text)
        cls.prepare("--train", "--vocab-size", 320, "--model", "tokenizer.model", "a.txt", "b.txt")
        cls.prepare("--model", "tokenizer.model", "--to", "a.npy", "--document", "line", "a.txt")
        cls.prepare("--model", "tokenizer.model", "--to", "b.bin", "--format", "megatron", "--document", "line", "b.txt")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    @classmethod
    def prepare(cls, *arguments):
        paths = [cls.folder / argument if re.fullmatch(r"[a-z]+\.[a-z]+", str(argument)) else argument
                 for argument in arguments]
        result = cls.cluster.run("data", "prepare", *paths)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def submit(self, source, validation="", **changes):
        job = support.job_yaml(self.folder, corpus=source, extra=validation, **changes)
        path = self.folder / "tokens.yaml"
        path.write_text(job.replace("vocab_size: 256", "vocab_size: 320"))
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        name = re.search(r"job/([a-z0-9-]+)", result.stdout).group(1)
        return self.cluster.wait_for_state(name, {"succeeded", "failed", "cancelled"}, 120)

    def test_inspect_tells_what_prepare_made(self):
        result = self.cluster.run("data", "inspect", self.folder / "a.npy", self.folder / "b.bin", "--vocab-size", 320,
                                  "--end-of-document", 2, "-o", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        npy, megatron = json.loads(result.stdout)
        self.assertEqual((npy["format"], megatron["format"]), ("npy", "megatron"))
        self.assertEqual((npy["documents"], megatron["documents"]), (1500, 1500))
        self.assertLess(npy["largest"], 320)

    def test_mixed_documents_train_to_the_same_curve_on_one_worker_and_on_two(self):
        """Weights, relative paths, documents, a short last microbatch and validation, all in one job."""
        source = "[{path: a.npy, weight: 0.7}, {path: 'b*.bin', weight: 0.3}]"
        outcomes = []
        for pipeline in (1, 2):
            ended = self.submit(source, "validation: {source: b.bin, every: 5, microbatches: 2}\n", pipeline=pipeline,
                                data=", end_of_document: 2, epochs: 0", microbatch_size=3)
            self.assertEqual(ended["state"], "succeeded", ended["reason"])
            losses = list(self.cluster.job_message(ended["name"]).losses)
            outcomes.append((losses, ended["weights_digest"]))
        self.assertEqual(outcomes[0], outcomes[1])
        losses = outcomes[0][0]
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_a_token_outside_the_vocabulary_fails_the_job_with_file_place_and_step(self):
        tokens = [5] * 5000
        tokens[64::128] = [320] * len(tokens[64::128])
        (self.folder / "bad.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        ended = self.submit("bad.bin", steps=4)
        self.assertEqual(ended["state"], "failed")
        self.assertRegex(ended["reason"], r"bad\.bin holds token 320 at place \d+ \(byte \d+\)")
        found = self.cluster.run("data", "inspect", self.folder / "bad.bin", "--vocab-size", 320)
        self.assertEqual(found.returncode, 1)
        self.assertIn("token 320 at place 64 (byte 128)", found.stderr)

    def test_a_damaged_file_fails_the_job_before_its_first_step(self):
        whole = pathlib.Path(self.folder / "a.npy").read_bytes()
        (self.folder / "cut.npy").write_bytes(whole[:-6])
        ended = self.submit("cut.npy")
        self.assertEqual(ended["state"], "failed")
        self.assertRegex(ended["reason"], r"cut\.npy: expected \d+ tokens of 2 bytes")
        self.assertEqual(ended["step"], 0)


if __name__ == "__main__":
    unittest.main()
