"""The numerics contract from outside: one job, trained many ways, is the same job to the last bit."""

import json
import math
import os
import random
import subprocess
import unittest

from tests.support import cluster as support


def train(folder, workers, **job):
    """Trains a job with `penstock up --run` and returns what it printed."""
    path = folder / f"{job.get('name', 'test')}-{random.getrandbits(64):x}.yaml"
    path.write_text(support.job_yaml(folder, **job))
    state = path.with_suffix(".state")
    result = subprocess.run([str(support.BINARIES / "penstock"), "up", "--workers", str(workers), "--state", str(state),
                             "--run", str(path), "-o", "json"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


class OneCurve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(4).__enter__()
        cls.folder = cls.cluster.folder

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def outcome(self, **job):
        name = self.cluster.submit(**job)
        ended = self.cluster.wait_for_state(name, {"succeeded", "failed", "cancelled"}, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        losses = list(self.cluster.job_message(name).losses)
        self.assertEqual(len(losses), job.get("steps", 20))
        return losses, ended["weights_digest"]

    def test_shape_of_the_run_moves_no_bit(self):
        """P x schedule x V x threads, and splits by hand, against the one-worker naive run."""
        losses, digest = self.outcome(pipeline=1, schedule="naive")
        self.assertRegex(digest, "^[0-9a-f]{32}$")
        self.assertLess(losses[-1], 0.8 * losses[0])
        shapes = []
        for pipeline in (1, 2, 4):
            for schedule, stages_per_rank in (("naive", 1), ("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 1),
                                              ("interleaved-1f1b", 2)):
                for threads in (1, 2):
                    shapes.append(dict(pipeline=pipeline, schedule=schedule, stages_per_rank=stages_per_rank,
                                       threads=threads))
        shapes += [
            dict(pipeline=2, schedule="1f1b", split="[[embedding], [0, 1, 2, 3, 4, 5, head]]"),
            dict(pipeline=2, schedule="gpipe", split="[[embedding, 0, 1, 2, 3, 4, 5], [head]]"),
            dict(pipeline=4, schedule="1f1b", split="[[embedding], [0, 1, 2, 3], [4, 5], [head]]"),
            dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b",
                 split="[[embedding, 0], [1, 2, 3], [4], [5, head]]"),
            dict(pipeline=2, stages_per_rank=4, schedule="interleaved-1f1b", threads=2),
            dict(pipeline=2, stages_per_rank=2, schedule="looped-bfs"),
            dict(pipeline=4, stages_per_rank=2, schedule="looped-bfs"),
            dict(pipeline=2, stages_per_rank=2, schedule="1f1b-v"),  # the loss is on rank 0
            dict(pipeline=4, stages_per_rank=2, schedule="1f1b-v", threads=2),
            dict(pipeline=4, schedule="1f1b", p2p="one-sided"),
            dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b", p2p="one-sided"),
        ]
        for shape in shapes:
            with self.subTest(**shape):
                self.assertEqual(self.outcome(**shape), (losses, digest))

    def test_shape_of_the_run_moves_no_bit_in_bfloat16(self):
        """The same contract where every block edge rounds: cuts, schedules and threads round nothing more or less."""
        losses, digest = self.outcome(pipeline=1, schedule="naive", dtype="bfloat16")
        self.assertLess(losses[-1], 0.8 * losses[0])
        self.assertNotEqual((losses, digest), self.outcome(pipeline=1, schedule="naive"))
        shapes = [dict(pipeline=pipeline, schedule=schedule, stages_per_rank=stages_per_rank, threads=threads)
                  for pipeline in (1, 2, 4)
                  for schedule, stages_per_rank in (("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2))
                  for threads in (1, 2)]
        shapes.append(dict(pipeline=2, schedule="1f1b", split="[[embedding], [0, 1, 2, 3, 4, 5, head]]"))
        shapes.append(dict(pipeline=4, schedule="1f1b", p2p="one-sided"))
        for shape in shapes:
            with self.subTest(**shape):
                self.assertEqual(self.outcome(**shape, dtype="bfloat16"), (losses, digest))

    def program_file(self, schedule, output, ending):
        made = self.cluster.run("schedule", schedule, "-p", 2, "-m", 4, "-o", output)
        self.assertEqual(made.returncode, 0, made.stderr)
        path = self.folder / f"{schedule}.{ending}"
        path.write_text(made.stdout)
        return f"file:{path}"

    def test_a_program_from_a_file_trains_as_the_schedule_that_it_is(self):
        curve = self.outcome(pipeline=2, schedule="1f1b")
        for output, ending in (("json", "json"), ("torch-csv", "csv")):
            with self.subTest(output=output):
                self.assertEqual(self.outcome(pipeline=2, schedule=self.program_file("1f1b", output, ending)), curve)
        # Last in, first out: its sums have another order, which a file may have.
        losses, _ = self.outcome(pipeline=2, schedule=self.program_file("gpipe-lifo", "json", "json"))
        for ours, theirs in zip(losses, curve[0]):
            self.assertAlmostEqual(ours, theirs, delta=1e-4 * theirs)

    def test_backwards_in_halves_and_pairs_move_no_bit(self):
        """Zero-bubble schedules and DualPipeV: the weight gradient runs when there is time for it."""
        for dtype in ("float32", "bfloat16"):
            base = dict(dtype=dtype, steps=8)
            curve = self.outcome(pipeline=1, schedule="naive", **base)
            for schedule, pipeline, stages_per_rank in (("zb-h1", 4, 1), ("zb-h2", 2, 1), ("zb-v", 2, 2),
                                                        ("v-half", 4, 2), ("v-min", 2, 2), ("dualpipe-v", 2, 2),
                                                        ("dualpipe-v", 4, 2)):
                with self.subTest(dtype=dtype, schedule=schedule, pipeline=pipeline):
                    self.assertEqual(self.outcome(pipeline=pipeline, stages_per_rank=stages_per_rank,
                                                  schedule=schedule, **base), curve)
        self.assertEqual(self.outcome(pipeline=2, schedule=self.program_file("zb-h1", "json", "json"), steps=8),
                         self.outcome(pipeline=1, schedule="naive", steps=8))

    def test_sums_in_another_order_keep_the_curve_within_their_tolerance(self):
        """Another rounding, which grows as training goes on: the tolerance is one of the first steps."""
        curve, digest = self.outcome(pipeline=1, schedule="naive", steps=8)
        for schedule, stages_per_rank in (("gpipe-lifo", 1), ("looped-bfs-lifo", 2)):
            with self.subTest(schedule=schedule):
                losses, own = self.outcome(pipeline=2, stages_per_rank=stages_per_rank, schedule=schedule, steps=8)
                self.assertNotEqual(own, digest)
                for ours, theirs in zip(losses, curve):
                    self.assertLessEqual(abs(ours - theirs), 1e-6 * theirs)

    def test_two_replicas_of_every_stage_train_one_model(self):
        """DualPipe and chimera: sums over two ranks have another order; both replicas end with the same bits."""
        variant = dict(steps=8, **self.VARIANTS["all together"])
        curve, _, passes = self.validated(pipeline=1, schedule="naive", **variant)
        for schedule in ("dualpipe", "chimera"):
            for pipeline in (2, 4):
                with self.subTest(schedule=schedule, pipeline=pipeline):
                    losses, digest, found = self.validated(pipeline=pipeline, schedule=schedule, **variant)
                    self.assertRegex(digest, "^[0-9a-f]{32}$")
                    for ours, theirs in zip(losses, curve):
                        self.assertLessEqual(abs(ours - theirs), 1e-6 * theirs)
                    self.assertEqual([step for step, _ in found], [step for step, _ in passes])

    def test_odd_microbatch_counts_move_no_bit(self):
        """m = 3 and m = 7 fit no textbook rule of the interleaved schedule."""
        for batch in (3, 7):
            base = dict(global_batch_size=batch, microbatch_size=1, steps=6)
            expected = self.outcome(pipeline=1, schedule="naive", **base)
            for shape in (dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b"),
                          dict(pipeline=4, stages_per_rank=2, schedule="interleaved-1f1b"),
                          dict(pipeline=4, schedule="1f1b"), dict(pipeline=3, schedule="gpipe"),
                          dict(pipeline=4, schedule="zb-h2"), dict(pipeline=4, stages_per_rank=2, schedule="zb-v"),
                          dict(pipeline=4, stages_per_rank=2, schedule="dualpipe-v")):
                with self.subTest(batch=batch, **shape):
                    self.assertEqual(self.outcome(**base, **shape), expected)

    # What a job may say of its model, its data and its batch, each alone and all together.
    VARIANTS = {
        "tied embeddings": dict(model=", tie_word_embeddings: true"),
        "qk norm": dict(model=", qk_norm: true, head_dim: 12"),
        "dropout": dict(model=", hidden_dropout: 0.2"),
        "uneven microbatches": dict(microbatch_size=3),
        "documents": dict(data=", end_of_document: 46"),
        "experts": dict(model=", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24, layers: [1, 2, 5]}"),
        "experts with a capacity": dict(
            model=", qk_norm: true, moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24, "
                  "norm_topk_prob: true, router_z_loss_coef: 0.001, capacity_factor: 1.0}", dtype="bfloat16",
            microbatch_size=3),
        "all together": dict(model=", tie_word_embeddings: true, qk_norm: true, head_dim: 12, hidden_dropout: 0.2",
                             microbatch_size=3, data=", end_of_document: 46"),
    }
    SHAPES = (dict(pipeline=2, schedule="1f1b"), dict(pipeline=4, schedule="gpipe", threads=2),
              dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b"),
              dict(pipeline=4, stages_per_rank=2, schedule="interleaved-1f1b"),
              dict(pipeline=2, schedule="1f1b", split="[[embedding], [0, 1, 2, 3, 4, 5, head]]"))

    def test_whatever_a_model_says_the_shape_of_the_run_moves_no_bit(self):
        plain, _ = self.outcome(steps=6)
        for name, variant in self.VARIANTS.items():
            expected = self.outcome(pipeline=1, schedule="naive", steps=6, **variant)
            if name != "uneven microbatches":
                self.assertNotEqual(expected[0], plain, name)
            for shape in self.SHAPES:
                with self.subTest(name, **shape):
                    self.assertEqual(self.outcome(steps=6, **variant, **shape), expected)

    def test_a_batch_of_eight_in_three_microbatches_is_that_batch_in_one(self):
        whole, _ = self.outcome(microbatch_size=8, steps=6)
        parts, _ = self.outcome(microbatch_size=3, steps=6, pipeline=2)
        for one, three in zip(whole, parts):
            self.assertLess(abs(one - three), 1e-6 * one)

    def validated(self, every=2, **job):
        """Losses, digest and validation losses of a job that is validated on text that it does not train on."""
        held_out = self.folder / "held_out.txt"
        held_out.write_text("".join(f"{n} green bottles hanging on the wall. " for n in range(200)))
        extra = f"validation: {{source: {held_out}, every: {every}, microbatches: 3}}\n"
        name = self.cluster.submit(extra=extra, **job)
        ended = self.cluster.wait_for_state(name, {"succeeded", "failed", "cancelled"}, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        message = self.cluster.job_message(name)
        passes = [(each.step, each.loss) for each in message.validation]
        self.assertEqual(ended["validation"], [{"step": s, "loss": repr(l)} for s, l in passes])
        for stage in ended["stages"]:
            self.assertEqual(stage["memory_peak_bytes"], stage["memory_predicted_bytes"])
        return list(message.losses), ended["weights_digest"], passes

    def test_validation_moves_no_bit_of_the_training_and_is_the_same_on_every_shape(self):
        variant = dict(steps=7, **self.VARIANTS["all together"])
        losses, digest = self.outcome(pipeline=1, schedule="naive", **variant)
        expected = None
        for shape in (dict(pipeline=1, schedule="naive"), *self.SHAPES):
            with self.subTest(**shape):
                found = self.validated(**variant, **shape)
                self.assertEqual(found[:2], (losses, digest))
                expected = expected or found[2]
                self.assertEqual([step for step, _ in found[2]], [2, 4, 6, 7])  # every second, and the last
                self.assertEqual(found[2], expected)
        self.assertLess(expected[-1][1], expected[0][1])  # another text of the same words is learnt too

    def test_validation_is_without_dropout_and_always_of_the_same_samples(self):
        """A model that does not move has one validation loss, whatever its masks."""
        still = dict(steps=6, lr=0, model=", hidden_dropout: 0.5")
        losses, _, passes = self.validated(**still)
        self.assertEqual(len({loss for _, loss in passes}), 1)
        _, _, undropped = self.validated(steps=6, lr=0)
        self.assertEqual(passes, undropped)

    def test_schedules_without_a_flush_train_with_older_weights(self):
        """Drained after every update they are synchronous; otherwise another curve, the same in every run."""
        base = dict(clip=0, steps=20)
        synchronous = self.outcome(pipeline=1, schedule="naive", **base)
        for schedule in ("pipedream", "pipedream-2bw"):
            with self.subTest(schedule):
                drained = self.outcome(pipeline=3, schedule=f"{schedule}, flush_every: 1", **base)
                self.assertEqual(drained, synchronous)
                losses, digest = self.outcome(pipeline=3, schedule=schedule, **base)
                self.assertNotEqual(digest, synchronous[1])
                self.assertLess(losses[-1], 0.8 * losses[0])
                self.assertEqual((losses, digest), self.outcome(pipeline=3, threads=2, schedule=schedule, **base))
                validated = self.validated(every=4, pipeline=3, schedule=schedule, **base)  # predicted memory too
                self.assertEqual([step for step, _ in validated[2]], [4, 8, 12, 16, 20])
                self.assertEqual(validated[:2], self.outcome(pipeline=3, schedule=f"{schedule}, flush_every: 4", **base))
        clipped = self.cluster.run("submit", self.cluster.write_job(pipeline=3, schedule="pipedream"))
        self.assertEqual(clipped.returncode, 2, clipped.stdout)
        self.assertIn("write clip_grad_norm: 0", clipped.stderr)

    def test_steps_without_a_barrier_move_no_bit(self):
        """Whatever clipping asks for: nothing, every step anew, or some; and between two validations."""
        for clip in (0, 1e-3, 1.0):
            with self.subTest(clip=clip):
                expected = self.outcome(pipeline=1, schedule="naive", clip=clip)
                for pipeline, schedule in ((4, "1f1b"), (3, "gpipe"), (2, "zb-h2"), (4, "zb-h2")):
                    found = self.outcome(pipeline=pipeline, schedule=f"{schedule}, optimizer_step: post-validated",
                                         clip=clip)
                    self.assertEqual(found, expected)
        validated = self.validated(every=3, pipeline=1, schedule="naive")
        self.assertEqual(self.validated(every=3, pipeline=4, schedule="zb-h2, optimizer_step: post-validated"), validated)
        refused = self.cluster.run("submit", self.cluster.write_job(
            pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b, optimizer_step: post-validated"))
        self.assertEqual(refused.returncode, 2, refused.stdout)
        self.assertIn("one stage a rank", refused.stderr)

    def test_another_seed_is_another_curve(self):
        first = self.outcome(steps=3)
        self.assertEqual(self.outcome(steps=3), first)
        self.assertNotEqual(self.outcome(steps=3, seed=2), first)

    def test_every_activation_pool_peaks_at_its_high_water(self):
        """H_s of interleaved-1f1b, P=4, V=2, m=8: 8,8,7,5,4,4,3,1."""
        name = self.cluster.submit(pipeline=4, stages_per_rank=2, schedule="interleaved-1f1b", steps=3,
                                   global_batch_size=8, microbatch_size=1)
        job = self.cluster.wait_for_state(name, {"succeeded", "failed"}, 60)
        self.assertEqual(job["state"], "succeeded", job["reason"])
        stages = self.cluster.job_message(name).stages
        self.assertEqual([stage.activation_slots for stage in stages], [8, 8, 7, 5, 4, 4, 3, 1])
        self.assertEqual([stage.activation_slots_peak for stage in stages], [8, 8, 7, 5, 4, 4, 3, 1])
        for stage in job["stages"]:
            self.assertGreater(stage["forward_ms"], 0)
            self.assertGreater(stage["backward_ms"], 0)
            self.assertEqual(stage["memory_peak_bytes"], stage["memory_predicted_bytes"])


class WhatCanBeLearnt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(2).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def test_random_bytes_cannot_be_learnt(self):
        """Uniform bytes hold nothing to learn: the loss stays near ln 256 when no sample is seen twice."""
        corpus = self.cluster.folder / "random.txt"
        corpus.write_bytes(random.Random(7).randbytes(400_000))
        job = train(self.cluster.folder, 2, corpus=corpus, pipeline=2, steps=40, lr=1e-3, name="random")
        for loss in map(float, job["losses"]):
            self.assertAlmostEqual(loss, math.log(256), delta=0.12)

    def test_one_repeated_byte_is_learnt_completely(self):
        corpus = self.cluster.folder / "repeated.txt"
        corpus.write_bytes(b"a" * 100_000)
        shape = dict(corpus=corpus, pipeline=2, steps=60, name="repeated")
        job = train(self.cluster.folder, 2, **shape)
        self.assertEqual(job["state"], "succeeded")
        self.assertLess(float(job["losses"][-1]), 0.01)
        # The printed losses read back to the very bits that a coordinator holds of the same job.
        name = self.cluster.submit(**shape)
        self.cluster.wait_for_state(name, "succeeded", 60)
        self.assertEqual([float(text) for text in job["losses"]], list(self.cluster.job_message(name).losses))
        self.assertTrue(all(isinstance(text, str) for text in job["losses"]))


if __name__ == "__main__":
    unittest.main()
