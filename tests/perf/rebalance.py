#!/usr/bin/env python3
"""One rebalance against the best split that trying all of them finds, through the real service; a JSON object a job.

    PENSTOCK_BINARIES=build/release/bin python3 -m tests.perf.rebalance [--steps N] [--rounds N] [--job vocabulary|emulated]

    vocabulary   8 small blocks under a vocabulary of 32,768 on two workers: a job moves on its way (`rebalance --apply`); each of
                 the 9 splits trains, in `--rounds` rounds of which the fastest counts; all losses must be the same to the bit
    emulated     14 blocks on 8 emulated devices: each of the 6,435 splits is simulated (`penstock schedule`), except those
                 whose slowest stage alone takes longer than the best one's step; the proposed and the best one run

    step_seconds           of the equal counts that the job began with, median
    predicted_seconds      what the proposal promised, which must be to move
    rebalanced_seconds     measured after the move
    best_seconds           measured, of the fastest split
    rebalanced_over_best, prediction_error (a part of what was measured)
"""

import argparse
import concurrent.futures
import itertools
import json
import re
import sys
import time

from penstock.v1 import jobs_pb2
from tests.support import cluster as support


def split_text(split):
    return "[" + ", ".join("[" + ", ".join(map(str, stage)) + "]" for stage in split) + "]"


def all_splits(blocks, stages):
    """Every contiguous split of embedding, blocks and head."""
    items = ["embedding", *range(blocks), "head"]
    for cuts in itertools.combinations(range(1, len(items)), stages - 1):
        bounds = (0, *cuts, len(items))
        yield tuple(tuple(items[begin:end]) for begin, end in zip(bounds, bounds[1:]))


def equal_counts(blocks, stages):
    """Of items, the remainder in the middle stages."""
    items, counts = ["embedding", *range(blocks), "head"], [(blocks + 2) // stages] * stages
    for extra in range((blocks + 2) % stages):
        counts[(stages - (blocks + 2) % stages) // 2 + extra] += 1
    bounds = [0, *itertools.accumulate(counts)]
    return tuple(tuple(items[begin:end]) for begin, end in zip(bounds, bounds[1:]))


def train(cluster, text):
    """Runs a job to its end and returns its name."""
    path = cluster.folder / "job.yaml"
    path.write_text(text)
    return cluster.train(path)["name"]


def wait_for(cluster, name, is_there):
    """Asks seldom, and by a message alone: what asks takes from what is measured."""
    while True:
        job = cluster.job_message(name)
        state = jobs_pb2.JobState.Name(job.state)
        if is_there(job, state):
            return
        if state in ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_SUCCEEDED"):
            sys.exit(f"{name} has ended: {state}: {job.reason}")
        time.sleep(0.5)


def train_moved(cluster, text, ask_at):
    """Runs a job to its end that goes on with a better split on its way; returns its name and the proposal."""
    path = cluster.folder / "job.yaml"
    path.write_text(text)
    name = re.search(r"job/(\S+)", cluster.run("submit", path).stdout).group(1)
    wait_for(cluster, name, lambda job, _: job.step >= ask_at)
    found = cluster.run("rebalance", name, "--apply", "-o", "json", timeout=600)
    proposal = that_moves(name, json.loads(found.stdout)) if found.stdout else None
    if found.returncode != 0:
        sys.exit(found.stderr)
    wait_for(cluster, name, lambda _, state: state == "JOB_STATE_SUCCEEDED")
    return name, proposal


def that_moves(name, proposal):
    if proposal["answer"] != "move":
        sys.exit(f"{name}: expected the answer to be move, found {proposal['answer']}: {proposal['because']}")
    return proposal


def step_seconds(cluster, name):
    return cluster.json("curves", name)["step_seconds"]


def outcome_of(job, proposal, rebalanced, best, **more):
    predicted = proposal["best_step_seconds"]
    return {"benchmark": "rebalance", "job": job, "step_seconds": proposal["step_seconds"], "predicted_seconds": predicted,
            "rebalanced_seconds": rebalanced, "best_seconds": best, "rebalanced_over_best": rebalanced / best,
            "prediction_error": abs(predicted / rebalanced - 1), "answer": proposal["answer"], "split": proposal["split"],
            **more}


# --- two workers.

BLOCKS = 8
ASK_AT, CHECKPOINT_EVERY, MOVED_STEPS = 30, 30, 90  # 30 steps: the 100 microbatches of a proposal, warm-up aside


def vocabulary_job(cluster, split, steps, extra=""):
    text = support.job_yaml(cluster.folder, name="vocabulary", pipeline=2, layers=BLOCKS, hidden=384, sequence=64, steps=steps,
                            microbatch_size=1, global_batch_size=8, data=", epochs: 0", split=split_text(split), extra=extra)
    # A learning rate that does not know the last step: runs of any length begin alike.
    return re.sub("lr_schedule: {.*?}", "lr_schedule: {name: constant}", text.replace("vocab_size: 256", "vocab_size: 32768"))


def vocabulary(options):
    with support.Cluster(2) as cluster:
        equal = equal_counts(BLOCKS, 2)
        moved, proposal = train_moved(
            cluster, vocabulary_job(cluster, equal, MOVED_STEPS, f"checkpoint: {{every: {CHECKPOINT_EVERY}, keep: 1}}\n"), ASK_AT)
        unmoved = train(cluster, vocabulary_job(cluster, equal, MOVED_STEPS))
        if cluster.job_message(moved).losses != cluster.job_message(unmoved).losses:
            sys.exit("vocabulary: the move has changed losses")
        seconds, losses = {}, set()
        for _ in range(options.rounds):
            for split in all_splits(BLOCKS, 2):
                name = train(cluster, vocabulary_job(cluster, split, options.steps))
                seconds[split] = min(seconds.get(split, float("inf")), step_seconds(cluster, name))
                losses.add(tuple(cluster.job_message(name).losses))
        if len(losses) != 1:
            sys.exit(f"vocabulary: {len(losses)} loss curves of {options.rounds} rounds of {len(seconds)} splits")
        best = min(seconds, key=seconds.get)
        return outcome_of("vocabulary", proposal, step_seconds(cluster, moved), seconds[best], best_split=split_text(best),
                          tried=len(seconds))


# --- eight emulated devices.

RANKS, EMULATED_BLOCKS, MICROBATCHES = 8, 14, 16
COSTS = {"embedding": (0.3, 0.6), "block": (3, 6), "head": (10.5, 21)}  # forward and backward, ms


def emulated_job(cluster, split, steps):
    text = support.job_yaml(cluster.folder, corpus="/there/is/no/such/file.txt", name="emulated", layers=EMULATED_BLOCKS,
                            pipeline=RANKS, steps=steps, microbatch_size=1, global_batch_size=MICROBATCHES,
                            split=split_text(split))
    layers = ", ".join(f"{kind}: {{forward: {f}, backward: {b}}}" for kind, (f, b) in COSTS.items())
    return re.sub(r"(?m)^device: .*$", f"device: {{kind: emulated, costs: {{layers: {{{layers}}}}}}}", text)


def stage_costs(split):
    def of(item):
        return COSTS["block" if isinstance(item, int) else item]
    return [tuple(sum(of(item)[part] for item in stage) for part in (0, 1)) for stage in split]


def simulated(cluster, split):
    """Milliseconds of a step."""
    path = cluster.folder / f"{abs(hash(split))}.json"
    path.write_text(json.dumps({"stages": [
        {"forward": forward, "input_gradient": backward / 2, "weight_gradient": backward / 2}
        for forward, backward in stage_costs(split)]}))
    found = cluster.run("schedule", "1f1b", "-p", RANKS, "-m", MICROBATCHES, "--stage-costs", path, "-o", "json")
    path.unlink()
    if found.returncode != 0:
        sys.exit(found.stderr)
    return json.loads(found.stdout)["makespan"]


def fastest_simulated(cluster):
    def least(split):  # no step is shorter than its slowest stage's work
        return MICROBATCHES * max(map(sum, stage_costs(split)))

    splits = sorted(all_splits(EMULATED_BLOCKS, RANKS), key=least)
    best, best_ms, simulations = None, float("inf"), 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for begin in range(0, len(splits), 64):
            chunk = [split for split in splits[begin:begin + 64] if least(split) < best_ms]
            simulations += len(chunk)
            for split, milliseconds in zip(chunk, pool.map(lambda split: simulated(cluster, split), chunk)):
                if milliseconds < best_ms:
                    best, best_ms = split, milliseconds
    return best, best_ms, len(splits), simulations


def emulated(options):
    with support.Cluster(0) as cluster:
        cluster.start_worker("devices", "--device", "emulated", "--devices", RANKS)
        cluster.wait_for_workers(RANKS)
        first = train(cluster, emulated_job(cluster, equal_counts(EMULATED_BLOCKS, RANKS), max(options.steps, 12)))
        proposal = that_moves(first, cluster.json("rebalance", first))
        best, best_ms, tried, simulations = fastest_simulated(cluster)
        chosen = next(split for split in all_splits(EMULATED_BLOCKS, RANKS) if split_text(split) == proposal["split"])
        seconds = {split: step_seconds(cluster, train(cluster, emulated_job(cluster, split, options.steps)))
                   for split in {chosen, best}}
        return outcome_of("emulated", proposal, seconds[chosen], seconds[best], best_split=split_text(best),
                          best_simulated_seconds=best_ms / 1000, tried=tried, simulated=simulations)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="of every run")
    parser.add_argument("--rounds", type=int, default=2, help="through all splits of the vocabulary job")
    parser.add_argument("--job", choices=["vocabulary", "emulated"], help="this one only")
    options = parser.parse_args()
    for name, run in {"emulated": emulated, "vocabulary": vocabulary}.items():
        if options.job in (None, name):
            print(json.dumps(run(options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
