#!/usr/bin/env python3
"""Runs exported schedules in PyTorch's own pipeline runtime and compares gradients with the unpipelined model.

Not part of tests/run, since PyTorch is large. In an environment of its own:

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python tests/exchange/run_in_pytorch.py --record tests/exchange/VERDICTS.md

Every rank is a process on the CPU with one thread; tensors pass through gloo. Each stage is a small block in
float64, so that a right schedule differs from the plain model in the last bits only, and a wrong one does not.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH = 16
ROWS = 3  # of a microbatch
TOLERANCE = 1e-12

# name, ranks, microbatches, stages a rank
SCHEDULES = [
    ("1f1b", 4, 8, 1),
    ("interleaved-1f1b", 4, 8, 2),
    ("interleaved-1f1b", 2, 6, 3),
    ("1f1b-v", 4, 8, 2),
    ("1f1b-v", 3, 7, 2),
    ("zb-h1", 4, 8, 1),
    ("zb-h2", 4, 8, 1),
    ("zb-auto", 4, 8, 1),
    ("zb-v", 4, 8, 2),
    ("v-half", 4, 8, 2),
    ("v-min", 4, 8, 2),
    ("dualpipe-v", 4, 8, 2),
    ("looped-bfs", 4, 8, 2),
]
FORMATS = {"torch-csv": "compute_only", "torch-csv-comms": "compute_comms"}


class Block(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.outer = torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(x)))


def batch(microbatches):
    torch.manual_seed(999)
    shape = (microbatches * ROWS, WIDTH)
    return torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)


def loss_of(output, target):
    return torch.nn.functional.mse_loss(output, target)


def plain_gradients(stages, microbatches):
    blocks = [Block(stage) for stage in range(stages)]
    inputs, targets = batch(microbatches)
    loss_of(torch.nn.Sequential(*blocks)(inputs), targets).backward()
    return [[parameter.grad for parameter in block.parameters()] for block in blocks]


def stages_of_rank(path, rank):
    """The stages that a line of the file computes, ascending."""
    line = pathlib.Path(path).read_text().splitlines()[rank]
    names = line.replace("(", ",").replace(";", ",").split(",")
    return sorted({int(name.split("F")[0]) for name in names if "F" in name and name.split("F")[0].isdigit()})


def run_rank(rank, case, path, form, meeting, results):
    _, ranks, microbatches, per_rank = case
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    count = ranks * per_rank
    example = torch.zeros(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)  # a gradient comes back for it
    blocks = {stage: Block(stage) for stage in stages_of_rank(path, rank)}
    stages = [
        PipelineStage(block, stage, count, torch.device("cpu"), input_args=(example,), output_args=(example,))
        for stage, block in blocks.items()
    ]
    schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=loss_of, scale_grads=True)
    schedule._load_csv(path, format=form)
    inputs, targets = batch(microbatches)
    arguments = (inputs,) if 0 in blocks else ()
    schedule.step(*arguments, target=targets if count - 1 in blocks else None)

    expected = plain_gradients(count, microbatches)
    worst = 0.0
    for stage, block in blocks.items():
        for parameter, wanted in zip(block.parameters(), expected[stage]):
            worst = max(worst, ((parameter.grad - wanted).abs().max() / wanted.abs().max()).item())
    results[rank] = worst
    dist.barrier()
    dist.destroy_process_group()


def export(penstock, case, output, path):
    name, ranks, microbatches, per_rank = case
    command = [penstock, "schedule", name, "-p", str(ranks), "-m", str(microbatches), "-s", str(per_rank), "-o", output]
    path.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def verdict_of(penstock, case, output, folder):
    path = folder / f"{case[0]}.{output}.csv"
    export(penstock, case, output, path)
    meeting = folder / "meeting"
    meeting.unlink(missing_ok=True)
    results = processes.get_context("fork").Array("d", [float("inf")] * case[1])
    arguments = (case, str(path), FORMATS[output], str(meeting), results)
    try:  # forked, so that ranks need not load PyTorch again; nothing has started threads yet
        processes.start_processes(run_rank, arguments, nprocs=case[1], start_method="fork")
    except Exception as failure:  # a rank that failed is a verdict, too
        return f"failed: {str(failure).strip().splitlines()[-1]}", False
    worst = max(results)
    return f"largest relative difference {worst:.1e}", worst <= TOLERANCE


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--penstock", default="build/release/bin/penstock", help="the command that exports")
    arguments.add_argument("--record", help="write the verdicts to this file, too")
    arguments.add_argument("--only", help="run this schedule alone")
    options = arguments.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"

    lines = [
        "# Exported schedules in PyTorch's pipeline runtime",
        "",
        f"PyTorch {torch.__version__}, gloo, one process a rank, float64. Gradients of every parameter of every stage",
        f"against the unpipelined model on the whole batch; correct: all within {TOLERANCE:g} of the largest of its tensor.",
        "Written by run_in_pytorch.py in this folder.",
        "",
        "| schedule | ranks | microbatches | stages a rank | format | verdict | figure |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    all_correct = True
    with tempfile.TemporaryDirectory() as folder:
        for case in SCHEDULES:
            if options.only not in (None, case[0]):
                continue
            for output, form in FORMATS.items():
                figure, correct = verdict_of(options.penstock, case, output, pathlib.Path(folder))
                all_correct = all_correct and correct
                shape = " | ".join(str(part) for part in case)
                lines.append(f"| {shape} | {form} | {'correct' if correct else 'WRONG'} | {figure} |")
                print(lines[-1], flush=True)
    if options.record:
        pathlib.Path(options.record).write_text("\n".join(lines) + "\n")
    return 0 if all_correct else 1


if __name__ == "__main__":
    sys.exit(main())
