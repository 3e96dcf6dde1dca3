"""Degrees of parallelism from outside: weights and jobs that go from one to another, and what is told of ranks."""

import re
import unittest
import urllib.request

from tests.integration.moe_test import MOE
from tests.support import cluster as support

ENDS = {"succeeded", "failed", "cancelled"}


def degrees(expert, data):
    return f", expert: {expert}, data: {data}"


class Degrees(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(4).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def submit(self, parallel, **job):
        return self.cluster.submit(**{**dict(model=MOE, pipeline=2, steps=6, global_batch_size=16, parallel=parallel),
                                      **job})

    def succeeded(self, name):
        job = self.cluster.wait_for_state(name, ENDS, 60)
        self.assertEqual(job["state"], "succeeded", job["reason"])
        return job

    def test_weights_load_at_other_degrees_with_their_bits(self):
        trained = self.succeeded(self.submit(degrees(2, 1)))
        for pipeline, expert, data in ((1, 1, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2)):
            with self.subTest(pipeline=pipeline, expert=expert, data=data):
                text = support.job_yaml(self.cluster.folder, name="from", pipeline=pipeline, steps=1, lr=0,
                                        global_batch_size=16, parallel=degrees(expert, data))
                model = "model: {from: " + trained["weights_directory"] + "}"
                path = self.cluster.folder / f"from-{pipeline}-{expert}-{data}.yaml"
                path.write_text(re.sub(r"model: \{.*?\}", model, text, flags=re.DOTALL))
                name = re.search(r"job/([a-z0-9-]+)", self.cluster.run("submit", path).stdout).group(1)
                self.assertEqual(self.succeeded(name)["weights_digest"], trained["weights_digest"])

    def test_a_job_goes_on_at_other_degrees_and_says_that_its_sums_are_others(self):
        settings = dict(steps=400, data=", epochs: 0", extra="checkpoint: {every: 2}")
        name = self.submit(degrees(2, 1), **settings)
        support.wait_until(lambda: self.cluster.job(name)["step"] >= 3, 30, "steps are committed")
        self.assertEqual(self.cluster.run("pause", name).returncode, 0)
        self.cluster.wait_for_state(name, "paused", 30)
        durable = self.cluster.job(name)["durable_step"]
        curve = list(self.cluster.job_message(name).losses)
        other = self.cluster.write_job(model=MOE, pipeline=2, global_batch_size=16, parallel=degrees(1, 2), **settings)
        resumed = self.cluster.run("resume", name, "--with", other)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        support.wait_until(lambda: self.cluster.job(name)["step"] >= len(curve) + 2, 30, "it goes on")
        told = self.cluster.run("describe", "job", name).stdout
        self.cluster.run("cancel", name)
        self.assertIn("goes on with parallel.expert 1 in place of 2, parallel.data 2 in place of 1", told)
        self.assertIn(f"goes on from the checkpoint of step {durable}", told)
        losses = list(self.cluster.job_message(name).losses)
        self.assertEqual(losses[:durable], curve[:durable])
        for ours, theirs in zip(losses, curve):
            self.assertLessEqual(abs(ours - theirs), 1e-4 * theirs)

    def test_ranks_memory_and_payloads_are_told(self):
        name = self.submit(degrees(2, 1), steps=20_000, data=", epochs: 0")
        self.addCleanup(self.cluster.run, "cancel", name)
        support.wait_until(lambda: self.cluster.job(name)["step"] >= 3, 30, "steps are committed")
        text = self.cluster.run("describe", "job", name).stdout
        self.assertIn("4: pipeline 2 x expert 2 x data 1", text)
        self.assertRegex(text, r"1 +1 +0 +4\.\.7 +1,3\n")  # pipeline 1: expert rank 1, its experts, its ranks
        job = self.cluster.job(name)
        self.assertEqual(job["parallel"], {"pipeline": 2, "expert": 2, "data": 1})
        self.assertEqual([stage["rank"] for stage in job["stages"]], [0, 1, 2, 3])
        self.assertEqual([rank["rank"] for rank in job["memory"]], [0, 1, 2, 3])
        parameters = job["parameters"]
        rough = (parameters["dense"] + parameters["experts"] / 2) / 2
        self.assertEqual(parameters["rank_roughly"], rough)
        self.assertEqual(sum(parameters["ranks"]) / 4, rough)
        for rank, exact in zip(job["memory"], parameters["ranks"]):
            kinds = {kind["kind"]: kind for kind in rank["kinds"]}
            self.assertGreaterEqual(kinds["parameters"]["peak_bytes"], 4 * exact)
            self.assertLess(kinds["parameters"]["peak_bytes"], 4.2 * exact)
            self.assertEqual(kinds["payload"]["peak_bytes"], kinds["payload"]["predicted_bytes"])

        page = urllib.request.urlopen(f"http://{self.cluster.metrics}/metrics", timeout=5).read().decode()
        series = dict(re.findall(r'(penstock_payload_slots\{[^}]*training_job="' + name + r'"\}) (\d+)', page))
        self.assertEqual(len(series), 6)  # two stages, three states
        for stage in job["stages"][::2]:
            of_stage = {state: int(value) for state in ("total", "held", "peak") for key, value in series.items()
                        if f'stage="{stage["stage"]}"' in key and f'state="{state}"' in key}
            # At their peak all slots that the program implies are held; between two steps none is.
            self.assertEqual(of_stage, {"total": stage["payload_slots"], "held": 0, "peak": stage["payload_slots"]})
        self.assertIn(f'penstock_payload_oldest_lease_seconds{{stage="0",training_job="{name}"}}', page)


if __name__ == "__main__":
    unittest.main()
