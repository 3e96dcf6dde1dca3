"""The command line as a person meets it: refusals, exit codes, JSON, the Python client."""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

from tests.support import cluster as support

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CommandLine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = support.Cluster(2).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def refused(self, text):
        path = self.cluster.folder / "refused.yaml"
        path.write_text(text)
        before = len(self.jobs())
        result = self.cluster.run("submit", path)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(len(self.jobs()), before, "a refused job must not exist")
        return result.stderr

    def jobs(self):
        found = self.cluster.json("get", "jobs")
        return found if isinstance(found, list) else found["jobs"]

    def good(self, **changes):
        return support.job_yaml(self.cluster.folder, **changes)

    def test_bad_jobs_are_refused_with_line_field_and_reason(self):
        cases = [
            (self.good().replace("hidden_size", "hiden_size"), [r"line 2", "hiden_size", "hidden_size"]),
            (self.good(hidden=30), ["num_attention_heads", "hidden_size", "30", "4"]),
            (self.good(steps='"many"'), [r"line 5", "train.steps", "many"]),
            (self.good().replace("sequence_length: 32", ""), ["data.sequence_length"]),
            (self.good(pipeline=2, split="[[embedding, 0, 1, 2], [4, 5, head]]"), ["split", "3"]),
            (self.good(pipeline=2, split="[[embedding, 0, 1, 2], [2, 3, 4, 5, head]]"), ["split", "2"]),
            (self.good(pipeline=16), ["stages", "16", "8"]),
            (self.good(microbatch_size=9), ["microbatch_size", "global_batch_size", "8", "9"]),
            (self.good(schedule="1f1"), ["schedule", "1f1b"]),
            (self.good(extra="checkpoint: {every: 0}\n"), ["checkpoint.every", "0"]),
            (self.good(dtype="mxfp8"), ["dtype", "mxfp8", "not built yet"]),
            ("name: [unclosed", ["line 1"]),
            ("", ["line 1", "job file", "found nothing"]),
        ]
        for text, expected in cases:
            with self.subTest(expected=expected):
                message = self.refused(text)
                for part in expected:
                    self.assertRegex(message, part)

    def test_dry_run_starts_nothing(self):
        before = len(self.jobs())
        result = self.cluster.run("submit", self.cluster.write_job(), "--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(self.jobs()), before)

    def test_follow_exits_with_the_jobs_result(self):
        self.assertEqual(self.cluster.run("submit", self.cluster.write_job(steps=3), "--follow").returncode, 0)
        absent = self.cluster.folder / "absent.txt"
        failed = self.cluster.run("submit", self.cluster.write_job(corpus=absent), "--follow")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("absent.txt", failed.stdout + failed.stderr)

    def test_the_json_of_a_job_has_the_promised_fields(self):
        name = self.cluster.submit(pipeline=2, stages_per_rank=2, schedule="interleaved-1f1b", steps=4)
        self.cluster.wait_for_state(name, "succeeded", 30)
        job = self.cluster.job(name)
        self.assertLessEqual({"name", "state", "reason", "weights_digest", "step", "loss", "tokens_per_second", "attempt",
                              "stages"}, job.keys())
        self.assertEqual((job["step"], job["attempt"]), (4, 1))
        self.assertEqual([stage["stage"] for stage in job["stages"]], [0, 1, 2, 3])
        self.assertEqual([stage["rank"] for stage in job["stages"]], [0, 1, 0, 1])
        self.assertEqual(sum((stage["layers"] for stage in job["stages"]), []),
                         ["embedding", "0", "1", "2", "3", "4", "5", "head"])
        for stage in job["stages"]:
            self.assertLessEqual({"forward_ms", "backward_ms", "wait_ms", "memory_peak_bytes", "memory_predicted_bytes"},
                                 stage.keys())

    def test_logs_and_describe_speak_of_the_job(self):
        name = self.cluster.submit(pipeline=2, steps=3)
        self.cluster.wait_for_state(name, "succeeded", 30)
        self.assertIn("rank 0", self.cluster.run("logs", name).stdout)
        described = self.cluster.run("describe", "job", name)
        self.assertEqual(described.returncode, 0)
        self.assertIn("succeeded", described.stdout.lower())
        self.assertEqual(self.cluster.run("describe", "worker", "worker-0").returncode, 0)

    def test_metrics_are_those_of_the_design(self):
        """While a job runs every family is there with its labels; once it is retired its series may go."""
        corpus = self.cluster.folder / "long.txt"
        corpus.write_bytes(bytes(range(256)) * 40_000)
        name = self.cluster.submit(pipeline=2, steps=20_000, corpus=corpus)
        self.addCleanup(self.cluster.run, "cancel", name)
        self.cluster.wait_for_state(name, "running", 20)
        support.wait_until(lambda: self.cluster.job(name)["step"] > 1, 30, "steps are committed")
        metrics = f"http://{self.cluster.metrics}/metrics"
        # The counts of jobs and workers are renewed at the controller's tick, later than the job's own series.
        support.wait_until(lambda: 'penstock_jobs{state="running"} 1' in self.page(metrics), 10, "a tick counts the job")
        page = self.page(metrics)
        for sample in ('penstock_jobs{state="running"} 1', 'penstock_workers{state="assigned"} 2',
                       f'penstock_job_step{{training_job="{name}"}}', f'penstock_job_loss{{training_job="{name}"}}',
                       "penstock_job_tokens_total", f'penstock_step_seconds_bucket{{training_job="{name}"',
                       "penstock_pipeline_bubble_ratio{", "penstock_stage_seconds{", 'action="F"', 'action="B"',
                       "penstock_rank_memory_peak_bytes{", 'kind="activations"', "penstock_activation_slots{",
                       "penstock_worker_lease_expirations_total", "penstock_rpc_"):
            self.assertIn(sample, page)
        import grpc
        from penstock.v1 import workers_pb2, workers_pb2_grpc
        with grpc.insecure_channel(self.cluster.address) as channel:
            stub = workers_pb2_grpc.WorkersStub(channel)
            addresses = [worker.metrics_address for worker in
                         stub.List(workers_pb2.ListWorkersRequest(), timeout=5).workers]
        self.assertEqual(len(addresses), 2)
        for address in addresses:
            self.assertIn("penstock_", self.page(f"http://{address}/metrics"))

    @staticmethod
    def page(address):
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.read().decode()

    def test_health_and_reflection_answer(self):
        import grpc
        channel = grpc.insecure_channel(self.cluster.address)
        raw = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
        self.assertEqual(channel.unary_unary("/grpc.health.v1.Health/Check", **raw)(b"", timeout=2), b"\x08\x01")
        info = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", **raw)
        names = next(iter(info(iter([b"\x3a\x00"]), timeout=2)))
        for service in (b"penstock.v1.Jobs", b"penstock.v1.Workers", b"penstock.v1.Broker"):
            self.assertIn(service, names)

    def test_a_call_without_a_deadline_is_refused(self):
        import grpc
        from penstock.v1 import jobs_pb2, jobs_pb2_grpc
        stub = jobs_pb2_grpc.JobsStub(grpc.insecure_channel(self.cluster.address))
        with self.assertRaises(grpc.RpcError) as caught:
            stub.List(jobs_pb2.ListJobsRequest())
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("deadline", caught.exception.details())

    def test_a_python_client_from_the_protos_submits_and_watches(self):
        result = subprocess.run(
            [sys.executable, ROOT / "client/python/submit_and_watch.py", self.cluster.address,
             self.cluster.write_job(steps=5)], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout.splitlines()[-1], r"JOB_STATE_SUCCEEDED 5 \d")


class Offline(unittest.TestCase):
    def penstock(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if key != "PENSTOCK_COORDINATOR"}
        return subprocess.run([str(support.BINARIES / "penstock"), *arguments], capture_output=True, text=True,
                              timeout=30, env=environment)

    def test_a_schedule_verifies_and_a_swapped_one_does_not(self):
        printed = self.penstock("schedule", "1f1b", "-p", "4", "-m", "8", "-o", "json")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        program = json.loads(printed.stdout)
        folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
        path = folder / f"penstock-schedule-{os.getpid()}.json"
        self.addCleanup(path.unlink)
        path.write_text(printed.stdout)
        self.assertEqual(self.penstock("verify", str(path)).returncode, 0)
        actions = program["actions"][2]
        first, second = actions.index("2F1"), actions.index("2B1")
        actions[first], actions[second] = actions[second], actions[first]
        path.write_text(json.dumps(program))
        refused = self.penstock("verify", str(path))
        self.assertEqual(refused.returncode, 1)
        self.assertTrue(re.search(r"rank 2.*position 1.*2B1.*order|order.*rank 2.*position 1.*2B1",
                                  refused.stdout + refused.stderr), refused.stdout + refused.stderr)


if __name__ == "__main__":
    unittest.main()
