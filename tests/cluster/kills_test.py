#!/usr/bin/env python3
"""Loses ranks, nodes and links at random moments of a training on the nodes of scripts/cluster/cluster.sh, and resumes it each
time on another grid.

    tests/cluster/kills_test.py build/release/bin [--kills 20] [--seed N] [--stage 1] [--keep FOLDER]

The runs have data, tensor and pipeline parallelism and ZeRO. Each must end soon after the loss, with a message and an exit code
that say why, and leave no process, no shared memory and a run that can be resumed. At the end metrics.jsonl must have each step once, with the losses of a run of stage 0 that nothing
disturbs. Exits with 77 if this machine permits no such nodes.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from clusters import (CLUSTER, LOST, ROOT, SHORT_SILENCE, VANISH, check, end_cluster, kill_node, newest, ranks_left,
                      start_cluster, take_down_link, wait_until)

RUN = "run"
SETTINGS = ["--tokenizer", "char", "--n-layer", "4", "--n-head", "4", "--n-embd", "32", "--block-size", "16", "--batch-size", "8",
            "--grad-accumulation", "2", "--lr-schedule", "constant", "--warmup-steps", "0", "--learning-rate", "1e-4",
            "--val-fraction", "0.0004", "--eval-tokens", "0", "--max-new-tokens", "1", "--data", str(ROOT / "data/dummy.txt")]
WATCHDOG = 5                # seconds
HANG = 300                  # seconds, on a machine with other work; mpirun that has not ended by then counts as hung
MOST_KILLS = 3              # on one cluster, so that the numbers of nodes change
CLUSTER_LIMIT = 3 * HANG * MOST_KILLS
LOSS_LIMIT, NORM_LIMIT = 1e-5, 1e-4  # relative; those of compare_stages


class Grid(NamedTuple):
    """Ranks that compute different sequences, that divide each layer, and that divide the layers."""

    data: int
    tensor: int
    stages: int

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.stages


# How often each is chosen: half of the grids have tensor ranks and stages.
GRIDS = {Grid(2, 2, 2): 4, Grid(1, 2, 2): 2, Grid(1, 4, 2): 1, Grid(1, 2, 4): 1, Grid(2, 1, 4): 1, Grid(4, 2, 1): 1, Grid(2, 4, 1): 1,
         Grid(4, 1, 2): 1, Grid(8, 1, 1): 1}
SHAPES = ((4, 2), (8, 1), (2, 4))  # nodes, and ranks on each


def train_program(stage: int) -> list[str]:
    return ["stage1_train", "--threads", "1"] if stage == 1 else ["stage3_train_emulated"]


def metrics() -> list[dict]:
    """The complete lines of metrics.jsonl."""
    path = Path(RUN, "metrics.jsonl")
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


def last_step() -> int:
    lines = metrics()
    return lines[-1]["step"] if lines else 0


class Training:
    """One start or resumption of the run."""

    def __init__(self, bin_dir: Path, stage: int, grid: Grid, nodes: list[str], rng: random.Random, *more: str):
        self.first = newest(RUN)
        self.output = Path("output.txt")
        slots = -(-grid.ranks // len(nodes))
        comm = rng.choice(["zero1", "zero1-overlapped"])
        self.shape = f"{grid.data}×{grid.tensor}×{grid.stages} on {len(nodes)} nodes, {comm}"
        program, *flags = train_program(stage)
        command = ["mpirun", "-np", str(grid.ranks), "--bind-to", "none", "--oversubscribe", "--map-by", rng.choice(["slot", "node"]),
                   "--host", ",".join(f"{node}:{slots}" for node in nodes), str(bin_dir / program), *flags, *SETTINGS,
                   "--tensor-parallel", str(grid.tensor), "--pipeline-parallel", str(grid.stages), "--comm", comm,
                   "--checkpoint-every", str(rng.randint(2, 5)), "--eval-every", "1000000", "--watchdog-seconds", str(WATCHDOG),
                   "--run-dir", RUN, *(["--resume"] if self.first > 0 else []), *(more or ("--steps", "1000000"))]
        with self.output.open("w", encoding="utf-8") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def steps(self) -> int:
        """The number of steps that it has reported. (metrics.jsonl may still have lines of the run before.)"""
        told = re.findall(r"^step (\d+)/", self.text(), re.MULTILINE)
        return int(told[-1]) - self.first if told else 0

    def wait_for(self, moment: Callable[[], object]) -> None:
        def come() -> bool:
            check(self.process.poll() is None, "ended by itself, exit code", self.process.returncode, self.text())
            return bool(moment())

        check(wait_until(come, HANG, 0.002), "nothing happens:", self.text())

    def end(self, stopped: int = 0) -> int:
        """Waits for mpirun's end, and returns its exit code. A process stays stopped, even if somebody continues all."""
        def ended() -> bool:
            with contextlib.suppress(ProcessLookupError):
                if stopped:
                    os.kill(stopped, signal.SIGSTOP)
            return self.process.poll() is not None

        check(wait_until(ended, HANG), "hangs:", self.text(), ranks_left())
        return self.process.returncode

    def check_start(self) -> None:
        """That it began at the newest checkpoint, if it has come so far."""
        text = self.text()
        check("damaged" not in text, "a checkpoint with its name is damaged:", text)
        check("warning: saving step" not in text, "a checkpoint was not written:", text)
        if self.first > 0 and "\nrun: " in text:
            check(f'resumed from "step_{self.first:08}"' in text, "expected to resume from step", self.first, text)


def host_of(process: int | str) -> str:
    """Identifies the node on which a process runs."""
    return os.readlink(f"/proc/{process}/ns/uts")


def rank_processes(nodes: list[str]) -> dict[int, int]:
    """The process of each rank on these nodes."""
    hosts = {host_of(Path(os.environ["STAGEGPT_CLUSTER"], f"{node}.pid").read_text().strip()) for node in nodes}
    ranks = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith("stage") and host_of(process.name) in hosts:
                environment = dict(each.partition("=")[::2] for each in (process / "environ").read_text().split("\0"))
                ranks[int(environment["OMPI_COMM_WORLD_RANK"])] = int(process.name)
        except (OSError, KeyError):
            continue
    return ranks


def wait_for_moment(training: Training, nodes: list[str], rng: random.Random, stops: bool) -> str:
    """Waits for a random moment. A rank that is stopped is noticed only when the watchdogs run: after the start."""
    moment = rng.choice(["steps", "saving", "saving"] if stops else ["start", "steps", "saving", "saving"])
    if moment == "start":
        training.wait_for(lambda: rank_processes(nodes))
        time.sleep(rng.uniform(0, 1))
        return moment
    steps = rng.randint(1, 5)
    training.wait_for(lambda: training.steps() >= steps)
    if rng.random() < 0.75:  # after the first checkpoint, so that the run gets on
        training.wait_for(lambda: newest(RUN) > training.first)
    if moment == "saving":  # the directory exists for some milliseconds
        training.wait_for(lambda: any(Path(RUN, "checkpoints").glob("step_????????.tmp")))
    time.sleep(rng.uniform(0, 0.1))
    return moment


class Loss(NamedTuple):
    """What was lost, and what the output may say of it; the process that is to be stopped, if any; whether the next run may begin
    while ranks that nobody reaches still run; and the node, if any, whose ranks nobody reaches and have no watchdog yet."""

    what: str
    says: tuple[str, ...]
    stopped: int = 0
    may_go_on: bool = False
    unwatched: str = ""


class Cluster:
    """The nodes that are left, and what is killed there."""

    def __init__(self, nodes: int, rng: random.Random):
        self.nodes = [f"node{i + 1}" for i in range(nodes)]
        self.rng = rng

    def lose(self, training: Training) -> Loss:
        """Loses something at a random moment."""
        kind = self.rng.choice(["rank", "rank", "stop", "node", "link"] if len(self.nodes) > 2 else ["rank", "rank", "stop"])
        moment = f"{wait_for_moment(training, self.nodes, self.rng, kind == 'stop')}, step {last_step()}"
        watchdog = "(--watchdog-seconds): ending all ranks"
        if kind in ("rank", "stop"):
            training.wait_for(lambda: rank_processes(self.nodes))
            rank, process = self.rng.choice(sorted(rank_processes(self.nodes).items()))
            if kind == "stop":
                return Loss(f"stopped rank {rank} ({moment})", (watchdog,), process)
            os.kill(process, signal.SIGKILL)
            return Loss(f"killed rank {rank} ({moment})", (f"rank {rank} with PID", *LOST))
        node = self.rng.choice(self.nodes)
        self.nodes.remove(node)
        # Rank 0 holds the lock of the run until it ends.
        may_go_on = kind == "link" and not moment.startswith("start") and 0 in rank_processes(self.nodes) and self.rng.random() < 0.5
        (kill_node if kind == "node" else take_down_link)(node)
        return Loss(f"{'killed' if kind == 'node' else 'took down the link of'} {node} ({moment})", (watchdog, *LOST), 0,
                    may_go_on, node if kind == "link" and moment.startswith("start") else "")

    def check_memory(self) -> None:
        """That no rank has left shared memory on a node that runs."""
        on_node = CLUSTER.parent / "on_node.sh"
        for node in self.nodes:
            left = subprocess.run([on_node, node, "ls /dev/shm"], check=True, stdout=subprocess.PIPE, text=True).stdout
            check(not left, "left in shared memory of", node, left)


def kill_on_cluster(bin_dir: Path, stage: int, kills: range, nodes: int, rng: random.Random) -> int:
    """Runs inside a cluster. Returns the number of the next kill."""
    cluster = Cluster(nodes, rng)
    last = Path("last_grid.json")
    for kill in kills:
        others = [grid for grid in GRIDS if not last.exists() or list(grid) != json.loads(last.read_text())]
        grid = rng.choices(others, [GRIDS[each] for each in others])[0]
        last.write_text(json.dumps(grid))
        training = Training(bin_dir, stage, grid, cluster.nodes, rng)
        loss = cluster.lose(training)
        start = time.monotonic()
        code = training.end(loss.stopped)
        seconds = time.monotonic() - start
        check(code not in (0, 2, 75), "exit code", code, training.text())
        check(any(each in training.text() for each in loss.says), "the output does not say that it", loss.what, ":", training.text())
        if loss.unwatched:  # in MPI_Init they wait until TCP gives up, for a quarter of an hour
            kill_node(loss.unwatched)
        goes_on = loss.may_go_on and kill + 1 < kills.stop
        if not goes_on:  # ranks that nobody can reach end by their own watchdog
            check(wait_until(lambda: not ranks_left(), VANISH), "left behind:", ranks_left())
            cluster.check_memory()
        training.check_start()
        check(last_step() >= newest(RUN), "metrics.jsonl ends before checkpoint", newest(RUN))
        print(f"{kill + 1:3}. {training.shape}: {loss.what}; ended {seconds:.1f} s later, exit code {code}; newest checkpoint "
              f"{newest(RUN)}{'; the next run begins at once' if goes_on else ''}", flush=True)
    return 0


def relative(expected: float, actual: float) -> float:
    return abs(actual - expected) / abs(expected)


def compare(reference: list[dict], lines: list[dict]) -> str:
    steps = [line["step"] for line in lines]
    check(steps == list(range(1, len(steps) + 1)), "steps are missing, or there twice:", steps)
    check(len(steps) == len(reference), "expected", len(reference), "steps, not", len(steps))
    text = []
    for name, limit in (("loss", LOSS_LIMIT), ("grad_norm", NORM_LIMIT)):
        worst = max((relative(old[name], new[name]), new["step"]) for old, new in zip(reference, lines))
        check(worst[0] <= limit, name, "of step", worst[1], "differs from stage 0 by", worst[0])
        text.append(f"{name} {worst[0]:.1e}")
    both = [(old["validation_loss"], new["validation_loss"]) for old, new in zip(reference, lines)
            if "validation_loss" in old and "validation_loss" in new]
    check(bool(both), "no validation to compare")
    worst_validation = max(relative(*each) for each in both)
    check(worst_validation <= LOSS_LIMIT, "a validation loss differs by", worst_validation)
    return ", ".join((*text, f"validation_loss {worst_validation:.1e} ({len(both)} validations)"))


def call(*command: object) -> str:
    result = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(result.returncode == 0, "exit code", result.returncode, *command, result.stdout)
    return result.stdout


def finish_on_cluster(bin_dir: Path, stage: int, nodes: int, rng: random.Random) -> None:
    """Runs inside a cluster: the last steps, on a grid of tensor ranks and stages."""
    steps = newest(RUN) + 10
    training = Training(bin_dir, stage, Grid(2, 2, 2), Cluster(nodes, rng).nodes, rng, "--steps", str(steps))
    check(training.end() == 0, "the last run has failed:", training.text())
    training.check_start()
    check(newest(RUN) == steps, "the last step was not saved:", training.text())


def check_run(bin_dir: Path) -> None:
    """Compares the run with stage 0, which then reads its last checkpoint."""
    lines = metrics()
    steps = len(lines)
    call(bin_dir / "stage0_train", *SETTINGS, "--run-dir", "stage0", "--steps", steps, "--checkpoint-every", steps, "--eval-every", 1)
    reference = [json.loads(line) for line in Path("stage0/metrics.jsonl").read_text().splitlines()]
    print(f"{steps} steps, each once; largest relative differences from stage 0: {compare(reference, lines)}", flush=True)
    left = sorted(path.name for path in Path(RUN).rglob("*") if ".tmp" in path.name or ".damaged" in path.name)
    check(not left, "left in the run's folder:", left)
    call(bin_dir / "stage0_train", "--resume", RUN, "--run-dir", RUN, "--steps", steps + 2)
    call(bin_dir / "stage0_generate", "--model", f"{RUN}/latest", "--prompt", "The ", "--max-new-tokens", "4")
    print(f"stage 0 went on from step {steps} and generated a text", flush=True)


def run_cluster(shape: tuple[int, int], *arguments: object, cwd: str) -> None:
    cluster = start_cluster("--nodes", shape[0], "--slots", shape[1], sys.executable, Path(__file__).resolve(), *arguments, cwd=cwd)
    try:
        check(wait_until(lambda: cluster.poll() is not None, CLUSTER_LIMIT), "the cluster has not ended")
        check(cluster.returncode == 0, "failed")
    finally:
        end_cluster(cluster)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path, help="the folder of the programs, such as build/release/bin")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the grids, moments and victims")
    parser.add_argument("--stage", type=int, choices=(1, 3), default=1, help="3 is emulated")
    parser.add_argument("--keep", type=Path, help="a folder that keeps the run, also if a check fails")
    parser.add_argument("--inside", type=int, nargs=3, metavar=("FIRST", "END", "NODES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    bin_dir = arguments.bin.resolve()
    if arguments.inside:
        # mpirun forwards SIGCONT too, and ends, with exit code 0, if its nodes have not started yet.
        os.environ |= SHORT_SILENCE | {"OMPI_MCA_ess_base_forward_signals": "none"}
        first, end, nodes = arguments.inside
        rng = random.Random(f"{arguments.seed} {first}")
        if first < end:
            return kill_on_cluster(bin_dir, arguments.stage, range(first, end), nodes, rng)
        finish_on_cluster(bin_dir, arguments.stage, nodes, rng)
        return 0
    permitted = subprocess.run([CLUSTER, "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
    if permitted.returncode:
        print("kills_test.py: skipped:", permitted.stdout.strip())
        return 77
    print(f"stage {arguments.stage}, seed {arguments.seed}: {arguments.kills} kills", flush=True)
    rng = random.Random(arguments.seed)
    folder = arguments.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for first in [*range(0, arguments.kills, MOST_KILLS), arguments.kills]:
            shape = rng.choice(SHAPES)
            run_cluster(shape, bin_dir, "--seed", arguments.seed, "--stage", arguments.stage, "--inside", first,
                        min(first + MOST_KILLS, arguments.kills), shape[0], cwd=str(folder))
        os.chdir(folder)
        check_run(bin_dir)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
