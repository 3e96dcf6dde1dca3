"""Starts a coordinator and worker daemons for a test, drives them through the command line, and ends them by pid."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

BINARIES = pathlib.Path(os.environ["PENSTOCK_BINARIES"])


def wait_until(condition, seconds, what):
    """Polls until `condition()` is true and returns its value; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def process_exists(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Cluster(contextlib.AbstractContextManager):
    """A coordinator and `workers` daemons with one CPU device each, in a temporary folder."""

    def __init__(self, workers):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.state = self.folder / "state"
        self.processes = {}
        self.address = None
        self.metrics = None
        self._worker_count = workers

    def __enter__(self):
        try:
            self.start_coordinator()
            for index in range(self._worker_count):
                self.start_worker(f"worker-{index}")
            self.wait_for_workers(self._worker_count)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name, arguments):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(
            [str(argument) for argument in arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        return self.processes[name]

    def start_coordinator(self, address="127.0.0.1:0"):
        address_file = self.folder / "address.json"
        address_file.unlink(missing_ok=True)
        process = self._start("coordinator", [
            BINARIES / "penstock-coordinator", "--listen", address, "--metrics", "127.0.0.1:0",
            "--state", self.state, "--address-file", address_file])
        wait_until(lambda: address_file.exists() or process.poll() is not None, 10,
                   lambda: "the coordinator serves: " + self.log("coordinator"))
        assert process.poll() is None, self.log("coordinator")
        found = json.loads(address_file.read_text())
        self.address, self.metrics = found["address"], found["metrics"]

    def start_worker(self, name, *arguments):
        return self._start(name, [
            BINARIES / "penstock-worker", "--coordinator", self.address, "--name", name, "--listen", "127.0.0.1:0",
            "--metrics", "127.0.0.1:0", "--data-address", "127.0.0.1", *arguments])

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def run(self, *arguments, timeout=60):
        """Runs `penstock ARGUMENTS` against this coordinator."""
        return subprocess.run(
            [str(BINARIES / "penstock"), *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
            env={**os.environ, "PENSTOCK_COORDINATOR": self.address}, stdin=subprocess.DEVNULL)

    def json(self, *arguments):
        result = self.run(*arguments, "-o", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def workers(self):
        found = self.json("get", "workers")
        return found if isinstance(found, list) else found["workers"]

    def worker(self, name):
        return next(worker for worker in self.workers() if worker["name"] == name)

    def wait_for_workers(self, count):
        wait_until(lambda: sum(worker["state"] == "free" for worker in self.workers()) == count, 15,
                   lambda: f"{count} free workers; found {self.workers()}")

    def job(self, name):
        return self.json("get", "job", name)

    def job_message(self, name):
        """The job as the coordinator sends it, every committed step's loss included."""
        import grpc
        from penstock.v1 import jobs_pb2, jobs_pb2_grpc
        with grpc.insecure_channel(self.address) as channel:
            request = jobs_pb2.GetJobRequest(name=name, include_losses=True)
            return jobs_pb2_grpc.JobsStub(channel).Get(request, timeout=10)

    def write_job(self, **changes):
        """Writes a job file made of a small default and the changes; returns its path."""
        path = self.folder / f"job-{len(list(self.folder.glob('job-*.yaml')))}.yaml"
        path.write_text(job_yaml(self.folder, **changes))
        return path

    def submit(self, **changes):
        """Submits a job and returns its name."""
        result = self.run("submit", self.write_job(**changes))
        assert result.returncode == 0, result.stdout + result.stderr
        return re.search(r"job[ /]\"?([a-z0-9-]+)", result.stdout).group(1)

    def wait_for_state(self, name, states, seconds):
        states = {states} if isinstance(states, str) else set(states)
        job = {}

        def reached():
            job.update(self.job(name))
            return job["state"] in states

        wait_until(reached, seconds, lambda: f"job {name} is {states}: found {job.get('state')} ({job.get('reason')})")
        return job

    def train(self, path, seconds=600):
        """Runs a job file to its end and returns the job. Nothing polls, so that what is measured has the machine for itself."""
        found = self.run("submit", path, "--follow", timeout=seconds)
        assert found.returncode == 0, found.stdout + found.stderr
        return self.job(re.search(r"job/([a-z0-9-]+)", found.stdout).group(1))

    def kill(self, name, number=signal.SIGKILL):
        self.processes[name].send_signal(number)


def job_yaml(folder, *, name="test", corpus=None, pipeline=1, stages_per_rank=1, schedule="1f1b", split="auto",
             threads=1, steps=20, seed=1, microbatch_size=2, global_batch_size=8, layers=6, hidden=32, lr=1e-2,
             sequence=32, clip=1.0, dtype="float32", model="", data="", p2p="two-sided", parallel="",
             extra=""):
    # `model`, `data` and `parallel` are more keys of their sections: ", qk_norm: true".
    if corpus is None:
        corpus = folder / "corpus.txt"
        if not corpus.exists():
            corpus.write_text("".join(f"{n} bottles of beer on the wall, take one down. " for n in range(2000)))
    return f"""\
name: {name}
model: {{vocab_size: 256, hidden_size: {hidden}, num_hidden_layers: {layers}, num_attention_heads: 4,
        num_key_value_heads: 2, intermediate_size: {hidden * 2}, max_position_embeddings: {sequence}{model}}}
data: {{source: {corpus}, sequence_length: {sequence}{data}}}
train: {{steps: {steps}, global_batch_size: {global_batch_size}, microbatch_size: {microbatch_size}, dtype: {dtype},
        seed: {seed},
        optimizer: {{name: adamw, lr: {lr}, clip_grad_norm: {clip}}}, lr_schedule: {{name: cosine, warmup_steps: {min(5, steps // 2) if isinstance(steps, int) else 5}}}}}
parallel: {{pipeline: {pipeline}, stages_per_rank: {stages_per_rank}, schedule: {schedule}, split: {split},
           p2p: {{mode: {p2p}}}{parallel}}}
device: {{kind: cpu, threads: {threads}}}
{extra}"""
