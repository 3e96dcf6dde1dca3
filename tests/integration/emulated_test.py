"""Emulated devices: the whole service, and waits in the place of computations."""

import json
import re
import subprocess
import unittest

from tests.support import cluster as support

RANKS = 8
ENDS = {"succeeded", "failed", "cancelled"}


class Emulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(0).__enter__()
        try:
            cls.cluster.start_worker("devices", "--device", "emulated", "--devices", RANKS)
            cls.cluster.wait_for_workers(RANKS)
        except BaseException:
            cls.cluster.__exit__(None, None, None)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def job_file(self, device, **changes):
        settings = {"pipeline": RANKS, "layers": RANKS, "steps": 3, "schedule": "1f1b", **changes}
        text = support.job_yaml(self.cluster.folder, corpus="/there/is/no/such/file.txt", name="emulated", **settings)
        path = self.cluster.folder / f"emulated-{len(list(self.cluster.folder.glob('emulated-*.yaml')))}.yaml"
        path.write_text(re.sub(r"(?m)^device: .*$", f"device: {{{device}}}", text))
        return path

    def run_job(self, device, **changes):
        result = self.cluster.run("submit", self.job_file(device, **changes))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        name = re.search(r"job/(\S+)", result.stdout).group(1)
        job = self.cluster.wait_for_state(name, ENDS, 60)
        self.assertEqual(job["state"], "succeeded", job["reason"])
        return job

    def step_seconds(self, device, **changes):
        job = self.run_job(device, **changes)
        return self.cluster.job_message(job["name"]).step_seconds

    def simulated_seconds(self, *arguments):
        found = subprocess.run([str(support.BINARIES / "penstock"), "schedule", *map(str, arguments), "-o", "json"],
                               capture_output=True, text=True, check=True)
        return json.loads(found.stdout)["makespan"] / 1000

    def test_a_job_of_eight_ranks_runs_with_nothing_computed(self):
        job = self.run_job("kind: emulated, costs: {stages: {forward: 1, backward: 2}, latency: 50us}")
        self.assertIsNone(job["loss"])
        self.assertIsNone(job["weights_digest"])
        self.assertIsNone(job["weights_directory"])
        self.assertEqual(job["step"], 3)
        self.assertEqual([stage["rank"] for stage in job["stages"]], list(range(RANKS)))
        for stage in job["stages"]:  # exactly as predicted: it is accounted, and not allocated
            self.assertEqual(stage["memory_peak_bytes"], stage["memory_predicted_bytes"])
            self.assertGreater(stage["forward_ms"], 0)
        self.assertEqual(list(self.cluster.job_message(job["name"]).losses), [])
        self.assertIn("woke at most", self.cluster.run("logs", job["name"]).stdout)
        self.assertIn("devices", self.cluster.run("describe", "worker", "devices").stdout)

    def test_a_step_takes_no_less_time_than_the_simulation_says(self):
        costs = {"latency": 2, "stages": [{"forward": 4 + stage % 2, "input_gradient": 5, "weight_gradient": 3}
                                          for stage in range(RANKS)]}
        path = self.cluster.folder / "costs.json"
        path.write_text(json.dumps(costs))
        simulated = self.simulated_seconds("1f1b", "-p", RANKS, "-m", 4, "--stage-costs", path, "--latency", 2)
        measured = self.step_seconds("kind: emulated, costs: costs.json")
        self.assertGreaterEqual(measured, simulated)
        self.assertLess(measured, 3 * simulated)  # a crowded host may be late
        self.assertGreaterEqual(self.step_seconds("kind: emulated, costs: costs.json, time_factor: 2"), 2 * simulated)

    def test_receives_posted_at_the_consumer_make_a_step_longer(self):
        # The latency is that of several actions, which early receives hide.
        device = "kind: emulated, costs: {stages: {forward: 3, backward: 6}, latency: 12}"
        shape = {"pipeline": 4, "stages_per_rank": 2, "schedule": "interleaved-1f1b", "global_batch_size": 16}
        early = self.step_seconds(device, **shape)
        at_consumer = self.step_seconds(device + ", posting: at-consumer", **shape)
        self.assertGreater(at_consumer, 1.1 * early)

    def test_jobs_that_cannot_be_rehearsed_are_refused_with_the_reason(self):
        (self.cluster.folder / "short.json").write_text('[{"forward": 1, "backward": 2}]')
        (self.cluster.folder / "empty.json").write_text('[{"backward": 2}]')
        cases = [
            ("kind: emulated", ["line", "device.costs", "expected a value"]),
            ("kind: emulated, costs: nowhere.json", ["device.costs", "nowhere.json"]),
            ("kind: emulated, costs: short.json", ["device.costs.stages", f"a list of {RANKS}"]),
            ("kind: emulated, costs: empty.json", ["empty.json", "stages[0].forward", "missing"]),
            ("kind: emulated, costs: {stages: {forward: 1, input_gradient: 1}}", ["weight_gradient"]),
            ("kind: cuda", ["device.kind", "not built yet"]),
            ("kind: gpu", ["device.kind", "expected one of cpu, emulated"]),
        ]
        for device, expected in cases:
            with self.subTest(device=device):
                result = self.cluster.run("submit", self.job_file(device))
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                for words in expected:
                    self.assertIn(words, result.stderr)

    def test_a_job_that_computes_waits_for_devices_that_do(self):
        result = self.cluster.run("submit", self.job_file("kind: cpu"))
        name = re.search(r"job/(\S+)", result.stdout).group(1)
        support.wait_until(lambda: "cpu device" in self.cluster.job(name)["reason"], 10, "it says what it waits for")
        self.assertEqual(self.cluster.run("cancel", name).returncode, 0)

    def test_up_starts_the_devices_that_its_job_asks_for(self):
        job = self.job_file("kind: emulated, costs: {stages: {forward: 1, backward: 2}}")
        result = subprocess.run(
            [str(support.BINARIES / "penstock"), "up", "--state", str(self.cluster.folder / "up"), "--run", str(job),
             "-o", "json"], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        outcome = json.loads(result.stdout)
        self.assertEqual(outcome["state"], "succeeded")
        self.assertEqual(outcome["losses"], [])
        refused = subprocess.run([str(support.BINARIES / "penstock"), "up", "--device", "cpu", "--run", str(job)],
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("asks for emulated devices", refused.stderr)


if __name__ == "__main__":
    unittest.main()
