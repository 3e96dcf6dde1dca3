"""Routed experts over several ranks, from outside: P x M_E x D_E ranks are one job, whatever its schedule."""

import random
import re
import unittest
import urllib.request

from tests.support import cluster as support

MOE = (", moe: {num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 32, layers: [1, 2, 4],"
       " norm_topk_prob: true, router_aux_loss_coef: 0.01, router_z_loss_coef: 0.001}")
BESIDE_SHARED_ONES = MOE.replace("layers:", "num_shared_experts: 1, layers:")
# name, stages a rank; P = 2
SYNCHRONOUS = (("naive", 1), ("gpipe", 1), ("1f1b", 1), ("interleaved-1f1b", 2), ("looped-bfs", 2), ("1f1b-v", 2),
               ("zb-h1", 1), ("zb-h2", 1), ("zb-auto", 1), ("zb-v", 2), ("v-half", 2), ("v-min", 2), ("v-auto", 2),
               ("dualpipe-v", 2))
# Their sums have another order.
OTHER_ORDER = (("gpipe-lifo", 1), ("looped-bfs-lifo", 2), ("dualpipe", 1), ("chimera", 1))
ASYNCHRONOUS = (("pipedream", 1), ("pipedream-2bw", 1))


class ExpertsOverRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(8).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def submit(self, *, expert=1, data=1, sharded=False, endless=False, **job):
        if endless:
            job["data"] = ", epochs: 0"
        parallel = f", expert: {expert}, data: {data}, shard_optimizer: {str(sharded).lower()}"
        settings = dict(model=MOE, steps=8, global_batch_size=24, microbatch_size=2, parallel=parallel)
        return self.cluster.submit(name=f"moe-{random.getrandbits(40):x}", **{**settings, **job})

    def outcome(self, **job):
        name = self.submit(**job)
        ended = self.cluster.wait_for_state(name, {"succeeded", "failed", "cancelled"}, 120)
        self.assertEqual(ended["state"], "succeeded", ended["reason"])
        return list(self.cluster.job_message(name).losses), ended["weights_digest"]

    def assert_near(self, losses, curve, tolerance):
        self.assertEqual(len(losses), len(curve))
        for ours, theirs in zip(losses, curve):
            self.assertLessEqual(abs(ours - theirs), tolerance * theirs)

    def test_every_schedule_trains_with_experts_on_two_ranks(self):
        curve, digest = self.outcome(pipeline=1, schedule="naive", expert=2)
        self.assertLess(curve[-1], 0.8 * curve[0])
        for schedule, stages_per_rank in SYNCHRONOUS:
            with self.subTest(schedule=schedule):
                self.assertEqual(self.outcome(pipeline=2, stages_per_rank=stages_per_rank, schedule=schedule, expert=2),
                                 (curve, digest))
        for schedule, stages_per_rank in OTHER_ORDER:
            with self.subTest(schedule=schedule):
                losses, _ = self.outcome(pipeline=2, stages_per_rank=stages_per_rank, schedule=schedule, expert=2)
                self.assert_near(losses, curve, 1e-5)
        for schedule, stages_per_rank in ASYNCHRONOUS:
            with self.subTest(schedule=schedule):
                losses, _ = self.outcome(pipeline=2, stages_per_rank=stages_per_rank, schedule=schedule, expert=2,
                                         clip=0)
                self.assertLess(losses[-1], 0.9 * losses[0])

    def test_degrees_of_parallelism_train_the_same_model(self):
        """Sums over ranks have another order at each (M_E, D_E); at fixed degrees no bit moves."""
        curve, _ = self.outcome(pipeline=1, schedule="naive")
        for expert, data in ((2, 1), (1, 2), (1, 3), (2, 2)):
            degrees = dict(expert=expert, data=data)
            with self.subTest(**degrees):
                fixed = self.outcome(pipeline=1, schedule="naive", **degrees)
                self.assert_near(fixed[0], curve, 1e-4)
                shapes = [dict(pipeline=2, schedule="1f1b"),
                          dict(pipeline=2, schedule="1f1b", split="[[embedding], [0, 1, 2, 3, 4, 5, head]]"),
                          dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b",
                               split="[[embedding, 0], [1, 2, 3], [4], [5, head]]"),
                          dict(pipeline=2, schedule="zb-h1", sharded=True, extra="recompute: full"),
                          dict(pipeline=2, schedule="1f1b", extra="recompute: [1, 3]", p2p="one-sided")]
                for shape in shapes:
                    with self.subTest(**shape):
                        self.assertEqual(self.outcome(**shape, **degrees), fixed)

    def test_a_batch_that_does_not_divide_counts_every_token_once(self):
        """11 sequences in microbatches of 2 over 3 pipelines: the last ones are short, or have nothing."""
        batch = dict(global_batch_size=11)
        curve, _ = self.outcome(pipeline=1, schedule="naive", **batch)
        fixed = self.outcome(pipeline=1, schedule="naive", data=3, **batch)
        self.assert_near(fixed[0], curve, 1e-4)
        self.assertEqual(self.outcome(pipeline=2, schedule="1f1b", data=3, **batch), fixed)

    def test_halves_of_a_microbatch_train_on_every_shape_alike(self):
        halves = dict(expert=2, extra="two_batch_overlap: true", model=BESIDE_SHARED_ONES)
        fixed = self.outcome(pipeline=1, schedule="naive", **halves)
        self.assertLess(fixed[0][-1], 0.8 * fixed[0][0])
        for shape in (dict(pipeline=2, schedule="1f1b"), dict(pipeline=2, schedule="zb-h1"),
                      dict(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b")):
            with self.subTest(**shape):
                self.assertEqual(self.outcome(**shape, **halves), fixed)

    def test_rows_of_experts_arrive_and_none_is_lost_or_told_twice(self):
        """Of every layer tokens x experts a token in each step, whoever holds the experts or replicates the stage."""
        batch, tokens, per_token, experts = 24, 32, 2, 8
        shapes = (dict(pipeline=2, schedule="1f1b"), dict(pipeline=2, schedule="1f1b", expert=2),
                  dict(pipeline=2, schedule="1f1b", expert=2, data=2), dict(pipeline=2, schedule="dualpipe"),
                  dict(pipeline=2, schedule="pipedream", clip=0),
                  dict(pipeline=2, stages_per_rank=2, schedule="zb-v", expert=2, extra="recompute: full"),
                  dict(pipeline=2, schedule="1f1b", expert=2, extra="two_batch_overlap: true"))
        for shape in shapes:
            with self.subTest(**shape):
                name = self.submit(**shape, steps=20, global_batch_size=batch)
                self.cluster.wait_for_state(name, "succeeded", 120)
                loads = self.cluster.json("curves", name)["experts"]
                self.assertEqual([load["layer"] for load in loads], [1, 2, 4])
                for load in loads:
                    self.assertEqual(load["experts"], experts)
                    self.assertAlmostEqual(load["rows_mean"] * experts, batch * tokens * per_token, places=6)
                    self.assertLessEqual(load["rows_min"], load["rows_mean"])
                    self.assertAlmostEqual(load["max_over_mean"], load["rows_max"] / load["rows_mean"], places=6)
                self.assertIn("MAX/MEAN", self.cluster.run("curves", name).stdout)

    def payload_slots(self, name):
        """{(stage, state): slots} of a job on the coordinator's metrics page."""
        with urllib.request.urlopen(f"http://{self.cluster.metrics}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        found = {}
        for labels, value in re.findall(r"^penstock_payload_slots\{(.*)\} (\S+)$", page, re.MULTILINE):
            named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if named["training_job"] == name:
                found[int(named["stage"]), named["state"]] = int(float(value))
        return found

    def test_leases_on_the_metrics_page_peak_at_what_the_schedule_holds(self):
        """Each block with experts: H_s inputs, as the schedule says them offline, and one backward's gradients."""
        layers = {0: 2, 1: 1}  # of two stages of 6 blocks
        for schedule in ("1f1b", "gpipe"):
            with self.subTest(schedule=schedule):
                offline = self.cluster.json("schedule", schedule, "-p", 2, "-m", 6)
                name = self.submit(pipeline=2, schedule=schedule, expert=2, steps=100_000, endless=True)
                support.wait_until(lambda: self.payload_slots(name), 60, "payloads on the metrics page")
                expected = {stage: layers[stage] * (high_water + 1)
                            for stage, high_water in enumerate(offline["payload_slots"])}
                for _ in range(20):
                    found = self.payload_slots(name)
                    for stage, slots in expected.items():
                        self.assertEqual((found[stage, "total"], found[stage, "peak"], found[stage, "held"]),
                                         (slots, slots, 0))
                self.assertEqual(self.cluster.run("cancel", name).returncode, 0)
                self.cluster.wait_for_state(name, "cancelled", 30)

    def test_memory_by_kind_is_what_was_predicted(self):
        """Of every rank and kind, within 3 %; what recomputation leaves out of the activations, too."""
        activations = {}
        for recompute in ("none", "full"):
            name = self.submit(pipeline=2, schedule="1f1b", expert=2, steps=3, extra=f"recompute: {recompute}",
                               model=BESIDE_SHARED_ONES)
            self.cluster.wait_for_state(name, "succeeded", 60)
            memory = self.cluster.job(name)["memory"]
            self.assertEqual([rank["rank"] for rank in memory], [0, 1, 2, 3])
            for rank in memory:
                self.assertTrue(rank["kinds"])
                for kind in rank["kinds"]:
                    with self.subTest(recompute=recompute, rank=rank["rank"], kind=kind["kind"]):
                        self.assertLessEqual(abs(kind["peak_bytes"] - kind["predicted_bytes"]),
                                             0.03 * kind["predicted_bytes"])
            activations[recompute] = [kind["peak_bytes"] for rank in memory for kind in rank["kinds"]
                                      if kind["kind"] == "activations"]
        for full, none in zip(activations["full"], activations["none"]):
            self.assertLess(full, 0.5 * none)


if __name__ == "__main__":
    unittest.main()
