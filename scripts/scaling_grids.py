#!/usr/bin/env python3
"""Predicts a training in bf16 on grids of data ranks, tensor ranks and stages: the tables of bench/notes/scaling.md, and a picture.

    ./scripts/scaling_grids.py                             # the tables
    ./scripts/scaling_grids.py --model gpt2-xl --ranks 16 256
    ./scripts/scaling_grids.py --picture docs/images/scaling_grids.svg

The rank is an assumption, not a measurement: see H100. The formulas are in grid_model.py. Needs only the standard library.
"""

import argparse
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from grid_model import Gpt, Grid, Rank, efficiency, step_of  # noqa: E402
from pictures import grids as picture  # noqa: E402
from scaling_model import Network, number_of_ranks, table  # noqa: E402

MODELS = {gpt.name: gpt for gpt in (Gpt("gpt2", 12, 768, 12), Gpt("gpt2-medium", 24, 1024, 16), Gpt("gpt2-large", 36, 1280, 20),
                                    Gpt("gpt2-xl", 48, 1600, 25), Gpt("gpt-8b", 40, 4096, 32))}
TENSOR_RANKS = [1, 2, 4, 5, 8]
STAGES = [1, 2, 4, 8]
SEQUENCES = 4096              # of a step
MICRO_BATCHES = [1, 2, 4, 8]  # sequences of a data rank
GIBIBYTE = 1 << 30

# A GPU of the kind of an H100, in a node of 8 with one network adapter each. The memory, the peak and the rates are the
# manufacturers' numbers; that 40 % of the peak and 90 % of the memory's size and rate are used is an assumption.
H100 = Rank(flops=0.4 * 989e12, memory=0.9 * 80e9, memory_rate=0.9 * 3.35e12, ranks_per_node=8,
            within_node=Network("NVLink", 3e-6, 1 / 450e9, 2 / 3.35e12), across_nodes=Network("NDR", 4e-6, 8 / 400e9, 2 / 3.35e12))


def steps(gpt, grid, rank):
    """All that fit, with micro-batches of several sizes, with and without recomputation."""
    for micro_batch in MICRO_BATCHES:
        micro_steps = SEQUENCES // (grid.data * micro_batch)
        for recompute in (False, True):
            step = step_of(gpt, grid, micro_batch, micro_steps, rank, recompute) if micro_steps > 0 else None
            if step and step.memory <= rank.memory:
                yield step


@cache
def best(gpt, grid, rank):
    """The most efficient step of a grid; none if nothing fits, or if there are more data ranks than sequences."""
    return max(steps(gpt, grid, rank), default=None, key=lambda step: efficiency(step, rank))


def grids(gpt, ranks):
    """Those whose tensor ranks divide the heads, and whose data ranks are a whole number."""
    return [Grid(ranks // (tensor * stages), tensor, stages) for tensor in TENSOR_RANKS for stages in STAGES
            if ranks % (tensor * stages) == 0 and gpt.heads % tensor == 0 and stages <= gpt.layers]


def best_of(gpt, some_grids, rank):
    """The most efficient step of several grids."""
    found = [step for grid in some_grids if (step := best(gpt, grid, rank))]
    return max(found, default=None, key=lambda step: efficiency(step, rank))


def cell(gpt, grid, rank):
    step = best(gpt, grid, rank)
    if step:
        return f"{1e3 * step.seconds:,.0f} ({step.memory / GIBIBYTE:.1f})"
    return "too few sequences" if grid.data > SEQUENCES else "does not fit"


def grid_table(gpt, all_ranks, rank):
    """Each grid: milliseconds and GiB."""
    rows = []
    for ranks in all_ranks:
        for tensor in TENSOR_RANKS:
            of_stages = {grid.stages: grid for grid in grids(gpt, ranks) if grid.tensor == tensor}
            if of_stages:
                rows.append([f"{ranks:,} ranks, {tensor}"] +
                            [cell(gpt, of_stages[stages], rank) if stages in of_stages else "" for stages in STAGES])
    return table(["ranks, tensor ranks"] + [f"{stages} stage{'s' * (stages > 1)}" for stages in STAGES], rows)


def part_row(step, rank):
    """Where the time of a step goes."""
    times = [step.compute, step.tensor, step.streams, step.bubble, step.data, step.optimizer]
    division = f"{step.micro_steps:,} × {step.micro_batch}{', block' if step.recompute else ''}"
    return [f"{step.grid.ranks:,} = {step.grid}", division, f"{step.memory / GIBIBYTE:.1f}",
            *[f"{1e3 * seconds:,.0f}" for seconds in times], f"{100 * efficiency(step, rank):.0f}"]


def part_table(gpt, all_ranks, rank):
    """For each number of ranks and of stages, the best grid."""
    rows = []
    for ranks in all_ranks:
        for stages in STAGES:
            step = best_of(gpt, [grid for grid in grids(gpt, ranks) if grid.stages == stages], rank)
            if step:
                rows.append(part_row(step, rank))
    header = ["ranks = data × tensor × stages", "micro-steps × sequences, recompute", "GiB", "compute", "tensor ranks", "stages"]
    return table(header + ["bubble", "data ranks", "AdamW", "%"], rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, action="append", help="default: gpt2, gpt2-xl and gpt-8b")
    parser.add_argument("--ranks", type=number_of_ranks, nargs="+", default=[8, 64, 1024, 10000])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the best grid of each, as SVG")
    return parser.parse_args()


def main():
    arguments = parse()
    models = [MODELS[name] for name in arguments.model or ["gpt2", "gpt2-xl", "gpt-8b"]]
    if arguments.picture:
        found = [(gpt, best_of(gpt, grids(gpt, ranks), H100)) for gpt in models for ranks in arguments.ranks]
        bars = [picture.Bar(gpt.name, step, efficiency(step, H100)) for gpt, step in found if step]
        arguments.picture.write_text(picture.draw(bars), encoding="utf-8")
        return
    for gpt in models:
        print(f"\n{gpt.name}, {gpt.parameters / 1e6:,.0f} million parameters: ms of a step (GiB of a rank)\n\n"
              f"{grid_table(gpt, arguments.ranks, H100)}\n\n{gpt.name}, the best grids, ms of a step:\n\n"
              f"{part_table(gpt, arguments.ranks, H100)}")


if __name__ == "__main__":
    main()
