#!/usr/bin/env python3
"""Emulated pipelines against their simulation: real coordinator, daemon, executors and messages on this machine.

Prints one JSON object a case:
    measured_seconds         mean time of the steps after the first two, as the coordinator commits them
    simulated_seconds        makespan of `penstock schedule` with the same costs, every receive posted early
    measured_over_simulated  of the two; not of receives posted at the consumer, which the simulation does not know
    over_half_costs          measured over that of the same case with half the costs, where there was one
    over_posted_early        measured over that of the same case with early receives, where there was one
    cpu_for_16_ranks         CPU time of all processes while the steps ran, as a share of one core and for 16 ranks
    prepare_seconds          from submit until every rank was ready
    lateness_ms              how much later than its timeline the worst rank woke: what the host adds
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

WARM_UP_STEPS = 2

# Times in milliseconds; F, I and W take `action` each.
CASES = [
    {"case": "interleaved", "schedule": "interleaved-1f1b", "ranks": 16, "stages_per_rank": 2, "microbatches": 64, "action": 5},
    {"case": "interleaved", "schedule": "interleaved-1f1b", "ranks": 16, "stages_per_rank": 2, "microbatches": 64, "action": 10},
    {"case": "deep", "schedule": "1f1b", "ranks": 32, "stages_per_rank": 1, "microbatches": 128, "action": 5},
    {"case": "deep", "schedule": "1f1b", "ranks": 32, "stages_per_rank": 1, "microbatches": 128, "action": 10},
    {"case": "latency", "schedule": "interleaved-1f1b", "ranks": 16, "stages_per_rank": 2, "microbatches": 64, "action": 10,
     "latency": 5},
    {"case": "latency", "schedule": "interleaved-1f1b", "ranks": 16, "stages_per_rank": 2, "microbatches": 64,
     "action": 10, "latency": 5, "posting": "at-consumer"},
    {"case": "wide", "schedule": "1f1b", "ranks": 64, "stages_per_rank": 1, "microbatches": 128, "action": 10},
]


def job_yaml(case, steps):
    stages = case["ranks"] * case["stages_per_rank"]
    parts = ", ".join(f"{part}: {case['action']}" for part in ("forward", "input_gradient", "weight_gradient"))
    return f"""\
name: emulated
model: {{vocab_size: 256, hidden_size: 64, num_hidden_layers: {stages}, num_attention_heads: 4, intermediate_size: 64,
        max_position_embeddings: 64}}
data: {{source: /none.txt, sequence_length: 64}}
train: {{steps: {steps}, global_batch_size: {case["microbatches"]}, microbatch_size: 1}}
parallel: {{pipeline: {case["ranks"]}, stages_per_rank: {case["stages_per_rank"]}, schedule: {case["schedule"]},
           p2p: {{mode: {case["p2p"]}}}}}
device: {{kind: emulated, posting: {case.get("posting", "early")},
         costs: {{latency: {case.get("latency", 0)}, stages: {{{parts}}}}}}}
"""


def simulated_seconds(binaries, case):
    command = [binaries / "penstock", "schedule", case["schedule"], "-p", case["ranks"], "-m", case["microbatches"],
               "-s", case["stages_per_rank"], "--costs", ",".join([str(case["action"])] * 3),
               "--latency", case.get("latency", 0), "-o", "json"]
    found = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)["makespan"] / 1000


def cpu_seconds(root):
    """CPU time of a process and of all that descend from it."""
    parents, times = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        parents[int(folder.name)] = int(fields[1])
        times[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def belongs(pid):
        while pid > 1:
            if pid == root:
                return True
            pid = parents.get(pid, 0)
        return False

    return sum(seconds for pid, seconds in times.items() if belongs(pid))


class Service:
    """`penstock up` with one daemon and as many emulated devices as it is asked for."""

    def __init__(self, binaries, folder):
        self.binaries = binaries
        self.process = subprocess.Popen(
            [str(binaries / "penstock"), "up", "--device", "emulated", "--state", str(folder / "state"), "-o", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.service = json.loads(self.process.stdout.readline())

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def run(self, *arguments):
        return subprocess.run([str(self.binaries / "penstock"), *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                              check=True, env={**os.environ, "PENSTOCK_COORDINATOR": self.service["address"]}).stdout

    def job(self, name):
        return json.loads(self.run("get", "job", name, "-o", "json"))

    def committed(self, name):
        """Steps and the sum of their seconds."""
        with urllib.request.urlopen(f"http://{self.service['metrics']}/metrics", timeout=10) as page:
            text = page.read().decode()
        values = [re.search(rf'^penstock_step_seconds_{part}{{training_job="{name}"}} (\S+)$', text, re.MULTILINE)
                  for part in ("count", "sum")]
        return (int(float(values[0].group(1))), float(values[1].group(1))) if all(values) else (0, 0.0)

    def wait_for_steps(self, name, steps, seconds):
        deadline = time.monotonic() + seconds
        while True:
            found = self.committed(name)
            if found[0] >= steps:
                return found
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: {steps} steps expected within {seconds} s, found {found}: {self.job(name)}")
            time.sleep(0.1)


def measured(service, folder, case, steps, simulated):
    path = folder / "job.yaml"
    path.write_text(job_yaml(case, steps + WARM_UP_STEPS + 1))
    submitted = time.monotonic()
    name = re.search(r"job/(\S+)", service.run("submit", path)).group(1)
    while service.job(name)["state"] in ("queued", "placing", "preparing"):
        time.sleep(0.05)
    prepared = time.monotonic()
    first, seconds_before = service.wait_for_steps(name, WARM_UP_STEPS, 60 + 5 * WARM_UP_STEPS * simulated)
    began, cpu_before = time.monotonic(), cpu_seconds(service.process.pid)
    time.sleep(steps * simulated * 0.98)  # looking costs CPU time
    last, seconds_after = service.wait_for_steps(name, first + steps, 60 + 5 * steps * simulated)
    ended, cpu_after = time.monotonic(), cpu_seconds(service.process.pid)
    deadline = ended + 60 + 5 * simulated
    while service.job(name)["state"] != "succeeded" and time.monotonic() < deadline:
        time.sleep(0.2)
    outcome = service.job(name)
    if outcome["state"] != "succeeded":
        raise SystemExit(f"{name}: {outcome['state']}: {outcome['reason']}")
    lateness = re.findall(r"woke at most ([0-9.]+) ms", service.run("logs", name))
    return {
        "measured_seconds": (seconds_after - seconds_before) / (last - first),
        "cpu_for_16_ranks": (cpu_after - cpu_before) / (ended - began) * 16 / case["ranks"],
        "prepare_seconds": prepared - submitted,
        "lateness_ms": max(map(float, lateness), default=None),
    }


def compared(case, seconds, simulated, seconds_of):
    """The case against its simulation and its relatives, which have run before it."""
    if "posting" in case:
        early = seconds_of.get((case["case"], case["action"]))
        return {"over_posted_early": seconds / early} if early else {}
    half = seconds_of.get((case["case"], case["action"] / 2))
    seconds_of[case["case"], case["action"]] = seconds
    return {"measured_over_simulated": seconds / simulated, **({"over_half_costs": seconds / half} if half else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4, help="steps that are measured")
    parser.add_argument("--p2p", choices=["one-sided", "two-sided"], default="one-sided")
    parser.add_argument("--case", choices=sorted({case["case"] for case in CASES}), help="these cases only")
    options = parser.parse_args()
    binaries = pathlib.Path(os.environ["PENSTOCK_BINARIES"])
    seconds_of = {}
    with tempfile.TemporaryDirectory(prefix="penstock-emulated-") as temporary:
        folder = pathlib.Path(temporary)
        service = Service(binaries, folder)
        try:
            for case in CASES:
                if options.case not in (None, case["case"]):
                    continue
                case["p2p"] = options.p2p
                simulated = simulated_seconds(binaries, case)
                outcome = measured(service, folder, case, options.repetitions, simulated)
                outcome["simulated_seconds"] = simulated
                outcome.update(compared(case, outcome["measured_seconds"], simulated, seconds_of))
                print(json.dumps({"benchmark": "emulated", **case, "repetitions": options.repetitions, **outcome}),
                      flush=True)
        finally:
            service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
