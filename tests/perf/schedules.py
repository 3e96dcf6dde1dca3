#!/usr/bin/env python3
"""Trains the quickstart job under every schedule of the catalogue, through the real service, and prints a JSON object a
schedule: what a step took, what the simulation of its own action times says that it should take, the activations held, and
whether losses and weights are those of naive.

    PENSTOCK_BINARIES=build/release/bin python3 -m tests.perf.schedules [--ranks P] [--steps N] [--text FILE]

A worker of one thread a rank: on fewer idle cores they wait for cores too, and the measured time shows it. Of a schedule
without a flush, whose steps run into each other, the times are those of all steps over their number.
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

# Name and stages a rank. naive first: the others are held against it.
SCHEDULES = [
    ("naive", 1), ("gpipe", 1), ("gpipe-lifo", 1), ("1f1b", 1), ("interleaved-1f1b", 2), ("looped-bfs", 2),
    ("looped-bfs-lifo", 2), ("1f1b-v", 2), ("zb-h1", 1), ("zb-h2", 1), ("zb-auto", 1), ("zb-v", 2), ("v-half", 2),
    ("v-min", 2), ("v-auto", 2), ("dualpipe", 1), ("dualpipe-v", 2), ("chimera", 1), ("pipedream", 1),
    ("pipedream-2bw", 1),
]
WITHOUT_FLUSH = {"pipedream", "pipedream-2bw"}  # a global norm would be a barrier: clipping is off


def job_of(schedule, stages_per_rank, options):
    """The quickstart job, with what a user would change in it."""
    job = QUICKSTART.read_text()

    def change(key, value):
        nonlocal job
        job, changes = re.subn(rf"(?m)^([^#\n]*\b{key}: )[^,}}#\n]*", rf"\g<1>{value} ", job, count=1)
        assert changes == 1, f"{QUICKSTART} has no {key}"

    change("name", schedule)
    change("source", options.text.resolve())
    change("steps", options.steps)
    change("warmup_steps", options.steps // 2)
    change("pipeline", options.ranks)
    change("stages_per_rank", stages_per_rank)
    change("schedule", schedule)
    if schedule in WITHOUT_FLUSH:
        change("clip_grad_norm", 0)
        change("schedule", f"{schedule}\n  flush_every: {options.steps}")
    return job


def train(cluster, schedule, stages_per_rank, options):
    path = cluster.folder / f"{schedule}.yaml"
    path.write_text(job_of(schedule, stages_per_rank, options))
    job = cluster.train(path)
    message = cluster.job_message(schedule)
    assert message.schedule == schedule, message.schedule
    return job["weights_digest"], message, cluster.json("trace", schedule)


def same_as(losses, digest, naive):
    if (losses, digest) == naive:
        return "to the bit"
    farthest = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, naive[0]))
    return f"{farthest:.1e}"


def peaks_of(job, ranks):
    """By rank: the most activations of each of its stages that it held at once, added up."""
    peaks = [0] * ranks
    for stage in job.stages:
        peaks[stage.rank] += stage.activation_slots_peak
    return peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="an even number, for dualpipe and chimera")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    options = parser.parse_args()
    if not options.text.is_file():
        sys.exit(f"{options.text} is not there: deploy/local/quickstart makes it, or name another with --text")

    naive = None
    with support.Cluster(options.ranks) as cluster:
        for schedule, stages_per_rank in SCHEDULES:
            digest, job, trace = train(cluster, schedule, stages_per_rank, options)
            updates = options.steps if schedule in WITHOUT_FLUSH else 1
            losses = list(job.losses)
            naive = naive or (losses, digest)
            print(json.dumps({
                "benchmark": "schedules",
                "schedule": schedule,
                "stages_per_rank": stages_per_rank,
                "measured_seconds": trace["measured_seconds"] / updates,
                "simulated_seconds": trace["simulated_seconds"] / updates,
                "ratio": trace["ratio"],
                "activations_peak": peaks_of(job, options.ranks),
                "loss": losses[-1],
                "weights_digest": digest,
                "naive": same_as(losses, digest, naive),
            }), flush=True)


if __name__ == "__main__":
    main()
