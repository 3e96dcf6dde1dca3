#!/usr/bin/env python3
"""Trains the quickstart job under every schedule of the catalogue, through the real service, and prints a JSON object a
schedule: what a step took, what the simulation of its own action times says that it should take, the activations held, and
whether losses and weights are those of naive.

    PENSTOCK_BINARIES=build/release/bin python3 -m tests.perf.schedules [--steps N] [--text FILE]

Four workers of one thread each: on fewer than four idle cores they wait for cores too, and the measured time shows it.
"""

import argparse
import json
import pathlib
import re
import sys
import tempfile

from tests.support import cluster as support

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "deploy" / "jobs" / "quickstart.yaml"
TEXT = ROOT / ".penstock" / "quickstart" / "bible.txt"
RANKS = 4

# Name and stages a rank. naive first: the others are held against it.
SCHEDULES = [
    ("naive", 1), ("gpipe", 1), ("gpipe-lifo", 1), ("1f1b", 1), ("interleaved-1f1b", 2), ("looped-bfs", 2),
    ("looped-bfs-lifo", 2), ("1f1b-v", 2), ("zb-h1", 1), ("zb-h2", 1), ("zb-auto", 1), ("zb-v", 2), ("v-half", 2),
    ("v-min", 2), ("v-auto", 2), ("dualpipe", 1), ("dualpipe-v", 2), ("chimera", 1), ("pipedream", 1),
    ("pipedream-2bw", 1),
]
WITHOUT_FLUSH = {"pipedream", "pipedream-2bw"}  # a global norm would be a barrier: clipping is off


def job_of(schedule, stages_per_rank, steps, text):
    """The quickstart job, with what a user would change in it."""
    job = QUICKSTART.read_text()

    def change(key, value):
        nonlocal job
        job, changes = re.subn(rf"(\b{key}: )[^,}}#\n]*", rf"\g<1>{value} ", job, count=1)
        assert changes == 1, f"{QUICKSTART} has no {key}"

    change("name", schedule)
    change("source", text)
    change("steps", steps)
    change("stages_per_rank", stages_per_rank)
    change("schedule", schedule)
    if schedule in WITHOUT_FLUSH:
        change("clip_grad_norm", 0)
    return job


def train(cluster, schedule, stages_per_rank, steps, text):
    path = cluster.folder / f"{schedule}.yaml"
    path.write_text(job_of(schedule, stages_per_rank, steps, text))
    submitted = cluster.run("submit", path)
    if submitted.returncode != 0:
        sys.exit(submitted.stdout + submitted.stderr)
    job = cluster.wait_for_state(schedule, {"succeeded", "failed", "cancelled"}, 600)
    if job["state"] != "succeeded":
        sys.exit(f"{schedule}: {job['state']}: {job['reason']}")
    return job["weights_digest"], cluster.job_message(schedule), cluster.json("trace", schedule)


def same_as(losses, digest, naive):
    if (losses, digest) == naive:
        return "to the bit"
    farthest = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, naive[0]))
    return f"{farthest:.1e}"


def peaks_of(job):
    """By rank: the most activations of each of its stages that it held at once, added up."""
    peaks = [0] * RANKS
    for stage in job.stages:
        peaks[stage.rank] += stage.activation_slots_peak
    return peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    options = parser.parse_args()
    if not options.text.is_file():
        sys.exit(f"{options.text} is not there: deploy/local/quickstart makes it, or name another with --text")

    naive = None
    with support.Cluster(RANKS) as cluster:
        for schedule, stages_per_rank in SCHEDULES:
            digest, job, trace = train(cluster, schedule, stages_per_rank, options.steps, options.text.resolve())
            losses = list(job.losses)
            naive = naive or (losses, digest)
            print(json.dumps({
                "benchmark": "schedules",
                "schedule": schedule,
                "stages_per_rank": stages_per_rank,
                "measured_seconds": trace["measured_seconds"],
                "simulated_seconds": trace["simulated_seconds"],
                "ratio": trace["ratio"],
                "activations_peak": peaks_of(job),
                "loss": losses[-1],
                "weights_digest": digest,
                "naive": same_as(losses, digest, naive),
            }), flush=True)


if __name__ == "__main__":
    main()
