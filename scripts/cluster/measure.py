#!/usr/bin/env python3
"""Measures the communication of a step on cluster.sh's nodes, and compares it with scripts/scaling_model.py.

    ./scripts/cluster/measure.py                       # 2 and 4 nodes; 1 and 10 Gb/s, and no limit
    ./scripts/cluster/measure.py --nodes 2 --bandwidth 1 --latency 0 100 1000 --rounds 3

Each round runs stage1_bench once for each network and number of nodes, with one rank on each node, --comm flat, and a model
with little to compute for its bytes. `busy` is the share of all cores that other programs used meanwhile: ignore a line where it
is not small. Without a limit, TCP takes as long as the processor needs to copy.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from scaling_model import Network, ring_time  # noqa: E402

MODEL = ["--model", "gpt2", "--n-layer", "4", "--n-embd", "384", "--n-head", "6"]

LIMIT = 600  # seconds, for a run


def fail(reason: str) -> NoReturn:
    print(f"measure.py: {reason}", file=sys.stderr)
    sys.exit(2)


@dataclass(frozen=True)
class Case:
    gigabits: float      # per second; 0: no limit
    microseconds: float  # of added latency
    nodes: int

    def __str__(self) -> str:
        limit = f"{self.gigabits:g} Gb/s" if self.gigabits else "no limit"
        return f"{limit}, {f'{self.microseconds:g} us, ' if self.microseconds else ''}{self.nodes} nodes"


def measure(case: Case, binary: Path, steps: int, eager_limit: int) -> tuple[float, float, int]:
    """Milliseconds of communication, the others' share of the cores, and the bytes of the arena."""
    nodes = case.nodes
    limit = ["--bandwidth", f"{case.gigabits:g}"] if case.gigabits else []
    if case.microseconds:
        limit += ["--latency", f"{case.microseconds:g}"]
    # Larger than a chunk of the ring: else each chunk waits for a permission, which the model leaves out (docs/scaling.md).
    eager = ["--mca", "btl_tcp_eager_limit", str(eager_limit)]
    command = [ROOT / "scripts/cluster/cluster.sh", "--nodes", str(nodes), *limit, "mpirun", "-np", str(nodes), "--bind-to", "none", *eager,
               binary / "stage1_bench", *MODEL, "--batch-size", str(nodes), "--seq-len", "8", "--threads", "1", "--steps", str(steps),
               "--warmup", "1", "--comm", "flat", "--json"]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        fail(f"a run has not ended within {LIMIT} s")
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip(" -")]  # mpirun frames its messages with dashes
        fail(lines[-1] if lines else f"a run has ended with exit code {result.returncode}")
    report = json.loads(result.stdout)
    return report["phases_ms"]["communication"], report["busy"]["others_share"], 4 * report["parameters"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--bandwidth", type=float, nargs="+", default=[1, 10, 0], metavar="GBITS", help="0: no limit")
    parser.add_argument("--latency", type=float, nargs="+", default=[0], metavar="US", help="added to that of the links (default: 0)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a run, after one that does not count (default: %(default)s)")
    parser.add_argument("--alpha", type=float, default=50, help="latency, in microseconds, for the prediction (default: %(default)s)")
    parser.add_argument("--gamma", type=float, default=0.08, help="addition, in ns per byte, for the prediction (default: %(default)s)")
    parser.add_argument("--eager-limit", type=int, default=1 << 20, metavar="BYTES", help="Open MPI's default: 65536")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
    arguments = parser.parse_args()
    if not (arguments.bin / "stage1_bench").is_file():
        fail(f"there is no {arguments.bin}/stage1_bench: build it first, or see --bin")
    cases = [Case(*each) for each in product(arguments.bandwidth, arguments.latency, arguments.nodes)]
    measured: dict[Case, list[float]] = {case: [] for case in cases}
    for number in range(arguments.rounds):
        for case in cases:
            milliseconds, busy, arena = measure(case, arguments.bin, arguments.steps, arguments.eager_limit)
            measured[case].append(milliseconds)
            network = Network("", (arguments.alpha + case.microseconds) * 1e-6, 8e-9 / case.gigabits if case.gigabits else 0,
                              arguments.gamma * 1e-9)
            predicted = f"{1e3 * ring_time(arena, case.nodes, network):.0f} ms" if case.gigabits else "none"
            print(f"round {number + 1}, {case}: measured {milliseconds:.0f} ms, median so far {median(measured[case]):.0f} ms, "
                  f"predicted {predicted}, busy {100 * busy:.0f} %", flush=True)


if __name__ == "__main__":
    main()
