#!/usr/bin/env python3
"""Predicts a training in bf16 on grids of data ranks and tensor ranks: the tables of docs/scaling.md, and its picture.

    ./scripts/scaling_grids.py                             # the tables
    ./scripts/scaling_grids.py --model gpt2-xl --ranks 16 256
    ./scripts/scaling_grids.py --picture docs/images/scaling_grids.svg

The rank is an assumption, not a measurement: see Rank. Needs only the standard library.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pictures import grids as picture  # noqa: E402
from scaling_model import (ADAMW_BYTES, ALIGNMENT, NORM_BYTES, PRESETS, Model, Network, bf16_time,  # noqa: E402
                           number_of_ranks, table)

PRESETS["gpt-8b"] = (40, 4096)
HEADS = {"gpt2": 12, "gpt2-medium": 16, "gpt2-large": 20, "gpt2-xl": 25, "gpt-8b": 32}
TENSOR_RANKS = [1, 2, 4, 5, 8]
VOCABULARY, LENGTH, SEQUENCES = 50257, 1024, 4096  # tokens, tokens of a sequence, sequences of a step
MICRO_BATCHES = [1, 2, 4, 8]                       # sequences of a data rank
GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Rank:
    """A GPU of the kind of an H100, in a node of 8 with one network adapter each. The memory, the peak and the rates are
    the manufacturers' numbers; that 40 % of the peak and 90 % of the memory's size and rate are used is an assumption."""
    flops: float = 0.4 * 989e12       # a second, bf16
    memory: float = 0.9 * 80e9        # bytes
    memory_rate: float = 0.9 * 3.35e12  # bytes a second
    ranks_per_node: int = 8
    within_node: Network = Network("NVLink", 3e-6, 1 / 450e9, 2 / 3.35e12)
    across_nodes: Network = Network("NDR", 4e-6, 8 / 400e9, 2 / 3.35e12)

    def network(self, neighbours):
        """Between the ranks of a group that takes so many neighbouring ranks."""
        return self.within_node if neighbours <= self.ranks_per_node else self.across_nodes


@dataclass(frozen=True)
class Part:
    """What one of several tensor ranks has of a model."""
    model: Model
    tensor_ranks: int

    @property
    def norms(self):
        return self.model.norms

    @property
    def shared(self):
        """Elements that all tensor ranks have: positions, layernorms, and in each block the biases of two products."""
        return self.model.channels * (LENGTH + 2 + 6 * self.model.layers)

    def arena(self, ranks=1):
        """Bytes in f32."""
        unit = 4 * ALIGNMENT * ranks
        whole = self.model.arena() // 4
        size = 4 * ((whole - self.shared) / self.tensor_ranks + self.shared)
        return -(-round(size) // unit) * unit

    def activations(self, rows, recompute):
        """Elements at the peak of a micro-step of `rows` tokens. Fitted to --dry-run in f32: 2 % for gpt2 and gpt2-medium on
        1, 2 and 4 tensor ranks."""
        L, C, R = self.model.layers, self.model.channels, self.tensor_ranks
        block, logits = C * (2 + 14 / R), VOCABULARY / R
        if recompute:
            return rows * (2 * L * C / R + max(block, C * (2 + 4 / R) + logits))
        return rows * ((L + 0.5) * block + logits)


@dataclass(frozen=True)
class Step:
    """One grid: the largest share of the peak that a micro-batch and a recomputation that fit allow."""
    tensor_ranks: int
    data_ranks: int
    micro_batch: int
    recompute: bool
    memory: float  # bytes of a rank
    sequences: int
    compute: float  # seconds of a step, as the following
    tensor: float
    data: float
    optimizer: float

    @property
    def seconds(self):
        return self.compute + self.tensor + self.data + self.optimizer


def tensor_time(model, rows, tensor_ranks, network):
    """The time of a micro-step's messages between tensor ranks: 2L+1 gathers and as many scatters in the forward, and again
    in the backward. A gather sends bf16, a scatter f32, because sums are in f32."""
    count = 2 * (2 * model.layers + 1)
    part = rows * model.channels / tensor_ranks
    gather = network.alpha + part * 2 * network.beta
    scatter = network.alpha + part * 4 * (network.beta + network.gamma)
    return count * (tensor_ranks - 1) * (gather + scatter)


def steps(model, tensor_ranks, data_ranks, rank):
    """All that fit."""
    part = Part(model, tensor_ranks)
    arena = part.arena(data_ranks)
    state = arena * (2.5 + 2 / data_ranks)  # weights in f32 and bf16, gradients, both moments divided
    flops_of_token = 6 * (model.parameters - LENGTH * model.channels) + 6 * model.layers * model.channels * LENGTH
    for micro_batch in MICRO_BATCHES:
        micro_steps = SEQUENCES // (data_ranks * micro_batch)
        if micro_steps == 0:
            continue
        for recompute in (False, True):
            rows = micro_batch * LENGTH
            memory = state + 2 * part.activations(rows, recompute)
            if memory > rank.memory:
                continue
            passes = 4 / 3 if recompute else 1
            messages = 1.5 if recompute else 1  # the forward's, but for the embedding's and the head's, once more
            yield Step(tensor_ranks, data_ranks, micro_batch, recompute, memory,
                       sequences=data_ranks * micro_batch * micro_steps,
                       compute=micro_steps * passes * rows * flops_of_token / tensor_ranks / rank.flops,
                       tensor=micro_steps * messages *
                       tensor_time(model, rows, tensor_ranks, rank.network(tensor_ranks)),
                       data=bf16_time(part, data_ranks, rank.network(data_ranks * tensor_ranks)) if data_ranks > 1 else 0,
                       optimizer=arena / 4 * (ADAMW_BYTES + NORM_BYTES + 2) / data_ranks / rank.memory_rate)


def efficiency(step, model, rank):
    """Of the rank's rate: the operations that a step needs, without those that are repeated."""
    needed = step.compute * (3 / 4 if step.recompute else 1)
    return needed / step.seconds


def best(model, tensor_ranks, ranks, rank):
    """The most efficient step of a grid; none if nothing fits, or if there are more data ranks than sequences."""
    return max(steps(model, tensor_ranks, ranks // tensor_ranks, rank), default=None,
               key=lambda step: efficiency(step, model, rank))


def grids(model, ranks):
    """The numbers of tensor ranks that divide the ranks and the heads."""
    return [tp for tp in TENSOR_RANKS if ranks % tp == 0 and HEADS[model.name] % tp == 0]


def row(model, ranks, tensor_ranks, rank):
    step = best(model, tensor_ranks, ranks, rank)
    grid = f"{ranks:,} = {ranks // tensor_ranks:,} × {tensor_ranks}"
    if step is None:
        fewer = ranks // tensor_ranks > SEQUENCES
        return [grid, "more data ranks than sequences" if fewer else "does not fit"] + [""] * 6
    return [grid, f"{step.micro_batch}{', block' if step.recompute else ''}", f"{step.memory / GIBIBYTE:.1f}",
            f"{1e3 * step.compute:,.0f}", f"{1e3 * step.tensor:,.0f}", f"{1e3 * step.data:,.0f}",
            f"{1e3 * step.optimizer:,.0f}", f"{100 * efficiency(step, model, rank):.0f}"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=PRESETS, action="append", help="default: gpt2, gpt2-xl and gpt-8b")
    parser.add_argument("--ranks", type=number_of_ranks, nargs="+", default=[8, 64, 1024, 10000])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the best grid of each, as SVG")
    return parser.parse_args()


def main():
    arguments, rank = parse(), Rank()
    models = [Model(name) for name in arguments.model or ["gpt2", "gpt2-xl", "gpt-8b"]]
    if arguments.picture:
        found = [(model, ranks, max((best(model, tp, ranks, rank) for tp in grids(model, ranks)), default=None,
                                    key=lambda step: efficiency(step, model, rank) if step else 0))
                 for model in models for ranks in arguments.ranks]
        bars = [picture.Bar(model.name, ranks, step, efficiency(step, model, rank)) for model, ranks, step in found if step]
        arguments.picture.write_text(picture.draw(bars), encoding="utf-8")
        return
    header = ["ranks = data × tensor", "micro-batch, recompute", "GiB", "compute", "tensor ranks", "data ranks", "AdamW", "%"]
    for model in models:
        rows = [row(model, ranks, tp, rank) for ranks in arguments.ranks for tp in grids(model, ranks)]
        print(f"\n{model.name}, {model.parameters / 1e6:,.0f} million parameters, ms of a step:\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
