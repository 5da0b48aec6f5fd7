#!/usr/bin/env python3
"""Measures what the network adds to a step on cluster.sh's nodes, and compares it with the models of docs/scaling.md.

    ./scripts/cluster/measure.py                       # 2 and 4 nodes; 1 and 10 Gb/s, and no limit
    ./scripts/cluster/measure.py --nodes 2 --bandwidth 1 --latency 0 100 1000 --rounds 3
    ./scripts/cluster/measure.py --grids 2x1x1 1x2x1 1x1x2 --bandwidth 0.1 1 --rounds 3

One rank on each node. Without --grids, each round runs stage1_bench once for each network and number of nodes, with --comm flat
and a model with little to compute for its bytes. `busy` is the share of all cores that other programs used meanwhile: ignore a line
where it is not small. Without a limit, TCP takes as long as the processor needs to copy.

With --grids DATAxTENSORxSTAGES, each round runs stage1_train on one rank, and for each grid without a limit and with each network.
The table at the end compares the steps with scripts/grid_model.py.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import product
from math import inf
from pathlib import Path
from statistics import median
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from grid_model import F32, Gpt, Grid, Part, Rank, step_of  # noqa: E402
from scaling_model import Network, ring_time, table  # noqa: E402

MODEL = ["--model", "gpt2", "--n-layer", "4", "--n-embd", "384", "--n-head", "6"]
# Of the grids: 4 layers of 128 channels, micro-steps of 8 sequences of 128 tokens.
GPT = Gpt("nano", layers=4, channels=128, heads=4, vocabulary=512, context=128)
SEQUENCES, MICRO_STEPS = 8, 4

BURST = "250"         # microseconds: less than a rank computes between two messages, in which a longer burst would gather

LIMIT = 600           # seconds, for a run
FRAME = 1514 / 1448   # bytes of an Ethernet frame and, after the headers of Ethernet, IP and TCP, of data in it


def fail(reason: str) -> NoReturn:
    print(f"measure.py: {reason}", file=sys.stderr)
    sys.exit(2)


@dataclass(frozen=True)
class Link:
    gigabits: float      # per second; 0: no limit
    microseconds: float  # of added latency

    def __str__(self) -> str:
        limit = f"{self.gigabits:g} Gb/s" if self.gigabits else "no limit"
        return f"{limit}, {self.microseconds:g} us" if self.microseconds else limit

    def network(self, alpha: float, gamma: float) -> Network:
        """With a latency and an addition of its own, in µs and ns a byte."""
        beta = FRAME * 8e-9 / self.gigabits if self.gigabits else 0
        return Network("", (alpha + self.microseconds) * 1e-6, beta, gamma * 1e-9)


NO_LIMIT = Link(0, 0)


def run(link: Link, nodes: int, eager_limit: int, program: list[object], burst: str = "") -> str:
    """What a program prints that runs on as many nodes, one rank on each."""
    limit = ["--bandwidth", f"{link.gigabits:g}"] if link.gigabits else []
    limit += ["--burst", burst] if burst else []
    limit += ["--latency", f"{link.microseconds:g}"] if link.microseconds else []
    # Larger than a chunk of the ring: else each chunk waits for a permission, which the model leaves out (bench/notes/network.md).
    eager = ["--mca", "btl_tcp_eager_limit", str(eager_limit)]
    command = [ROOT / "scripts/cluster/cluster.sh", "--nodes", str(max(2, nodes)), *limit,
               "mpirun", "-np", str(nodes), "--bind-to", "none", *eager, *map(str, program)]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        fail(f"a run has not ended within {LIMIT} s")
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip(" -")]  # mpirun frames its messages with dashes
        fail(lines[-1] if lines else f"a run has ended with exit code {result.returncode}")
    return result.stdout


def measure_communication(link: Link, nodes: int, options: argparse.Namespace) -> tuple[float, float, int]:
    """Milliseconds of communication, the others' share of the cores, and the bytes of the arena."""
    report = json.loads(run(link, nodes, options.eager_limit, [
        options.bin / "stage1_bench", *MODEL, "--batch-size", nodes, "--seq-len", 8, "--threads", 1, "--steps", options.steps,
        "--warmup", 1, "--comm", "flat", "--json"]))
    return report["phases_ms"]["communication"], report["busy"]["others_share"], 4 * report["parameters"]


def compare_data_ranks(options: argparse.Namespace) -> None:
    cases = list(product([Link(*each) for each in product(options.bandwidth, options.latency)], options.nodes))
    measured: dict[tuple[Link, int], list[float]] = {case: [] for case in cases}
    for number in range(options.rounds):
        for link, nodes in cases:
            milliseconds, busy, arena = measure_communication(link, nodes, options)
            measured[link, nodes].append(milliseconds)
            seconds = ring_time(arena, nodes, link.network(options.alpha, options.gamma))
            predicted = f"{1e3 * seconds:.0f} ms" if link.gigabits else "none"
            print(f"round {number + 1}, {link}, {nodes} nodes: measured {milliseconds:.0f} ms, "
                  f"median so far {median(measured[link, nodes]):.0f} ms, predicted {predicted}, busy {100 * busy:.0f} %", flush=True)


def measure_steps(link: Link, grid: Grid, options: argparse.Namespace) -> list[float]:
    """Milliseconds of the steps, without the first."""
    with tempfile.TemporaryDirectory() as folder:
        run(link, grid.ranks, options.eager_limit, [
            options.bin / "stage1_train", "--data", ROOT / "data/dummy.txt", "--tokenizer", "bpe", "--vocab-size", GPT.vocabulary,
            "--threads", 1, "--n-layer", GPT.layers, "--n-embd", GPT.channels, "--n-head", GPT.heads, "--block-size", GPT.context,
            "--batch-size", SEQUENCES, "--grad-accumulation", MICRO_STEPS, "--steps", options.steps + 1, "--val-fraction", 0,
            "--tensor-parallel", grid.tensor, "--pipeline-parallel", grid.stages, "--run-dir", f"{folder}/run"], BURST)
        lines = Path(folder, "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [1e3 * json.loads(line)["seconds"] for line in lines[1:]]


def predict(grid: Grid, network: Network, alone: float) -> tuple[float, float]:
    """Milliseconds of a step in which ranks compute, if one rank alone needs `alone` for it, and in which they wait for messages.
    Ranks that are more than the cores share these: none computes faster than if all cores were always busy."""
    sequences = SEQUENCES // grid.data
    instant = Network("", 0, 0, 0)
    everything = MICRO_STEPS * Part(GPT, Grid(1)).flops(SEQUENCES * GPT.context)
    computes = Rank(1e3 * everything / alone, inf, inf, 1, instant, instant)
    sends = Rank(inf, inf, inf, 1, network, network)
    computing, sending = (step_of(GPT, grid, sequences, MICRO_STEPS, rank, precision=F32) for rank in (computes, sends))
    return max(1e3 * computing.seconds, alone / len(os.sched_getaffinity(0))), 1e3 * sending.seconds


def compare_grids(options: argparse.Namespace) -> None:
    links = [NO_LIMIT] + [Link(*each) for each in product(options.bandwidth, options.latency) if any(each)]
    cases = [(Grid(1), NO_LIMIT), *product(options.grids, links)]
    measured: dict[tuple[Grid, Link], list[float]] = {case: [] for case in cases}
    for number in range(options.rounds):
        for grid, link in cases:
            steps = measure_steps(link, grid, options)
            measured[grid, link] += steps
            print(f"round {number + 1}, {grid}, {link}: {', '.join(f'{step:.0f}' for step in steps)} ms", flush=True)
    alone, rows = median(measured[cases[0]]), []
    for grid, link in cases[1:]:
        computing, sending = predict(grid, link.network(options.alpha, options.gamma), alone)
        steps, predicted = measured[grid, link], computing + sending
        of_link = [f"{sending:,.0f}", f"{predicted:,.0f}", f"{median(steps) / predicted:.2f}"] if link != NO_LIMIT else [""] * 3
        rows.append([f"{grid}, {link}", f"{computing:,.0f}", *of_link[:2],
                     f"{median(steps):,.0f} ({min(steps):,.0f} to {max(steps):,.0f})", of_link[2]])
    print(f"\none rank: {alone:.0f} ms\n")
    print(table(["data × tensor × stages, link", "computation", "messages", "step: predicted", "measured", "ratio"], rows))


def grid_of(text: str) -> Grid:
    data, tensor, stages = map(int, text.split("x"))
    if min(data, tensor, stages) < 1 or not 2 <= data * tensor * stages <= 8 or SEQUENCES % data:
        raise ValueError
    return Grid(data, tensor, stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--grids", type=grid_of, nargs="+", metavar="DxTxS", help="of 2 to 8 ranks in all, instead of --nodes")
    parser.add_argument("--bandwidth", type=float, nargs="+", default=[1, 10, 0], metavar="GBITS", help="0: no limit")
    parser.add_argument("--latency", type=float, nargs="+", default=[0], metavar="US", help="added to that of the links (default: 0)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a run, after one that does not count (default: %(default)s)")
    parser.add_argument("--alpha", type=float, default=50, help="latency, in microseconds, for the prediction (default: %(default)s)")
    parser.add_argument("--gamma", type=float, default=0.08, help="addition, in ns per byte, for the prediction (default: %(default)s)")
    parser.add_argument("--eager-limit", type=int, default=1 << 20, metavar="BYTES", help="Open MPI's default: 65536")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    options = parser.parse_args()
    program = "stage1_train" if options.grids else "stage1_bench"
    if not (options.bin / program).is_file():
        fail(f"there is no {options.bin}/{program}: build it first, or see --bin")
    compare_grids(options) if options.grids else compare_data_ranks(options)


if __name__ == "__main__":
    main()
