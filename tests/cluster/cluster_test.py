#!/usr/bin/env python3
"""Trains on the nodes of scripts/cluster/cluster.sh: each test starts a cluster of its own and runs inside it.

    tests/cluster/cluster_test.py build/release/bin two_nodes      # which tests there are: --help

References outside: the bytes that the kernel counts on each node's link, compared with the ring's formula; runs of as many
ranks on one host, without the cluster; the process table. Exits with 77 if this machine permits no such nodes.
"""

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from clusters import (CLUSTER, CLUSTER_LIMIT, LOST, ROOT, SHORT_SILENCE, VANISH, check, end_cluster, kill_node, newest, ranks_left,
                      start_cluster, take_down_link, time_left, wait_until)
from teardown import teardown

SMALL = ["--tokenizer", "char", "--n-layer", "2", "--n-head", "4", "--n-embd", "96", "--block-size", "32", "--batch-size", "8",
         "--val-fraction", "0", "--max-new-tokens", "1", "--data", str(ROOT / "data/dummy.txt")]
WATCHDOG = 3                # seconds
LATENCY = 3000              # microseconds
BANDWIDTH, BURST = 0.02, 250  # Gb/s, microseconds
MESSAGE = 200_000           # bytes: fewer than a link sends at once without --burst
SENDER = f"""
import socket, time
with socket.create_connection(("10.89.0.254", 5000), timeout=300) as head:
    start = time.monotonic()
    head.sendall(bytes({MESSAGE}))
    head.recv(1)
    print(time.monotonic() - start)
"""
bin_dir = Path()


def train_command(ranks: int, run: str, *flags: str, stage: int = 1, nodes: str = "") -> list[str]:
    program = {1: "stage1_train", 3: "stage3_train_emulated"}[stage]
    threads = ["--threads", "1"] if stage == 1 else []  # stage 3 has no such flag
    where = ["--host", nodes] if nodes else []
    return ["mpirun", "-np", str(ranks), "--bind-to", "none", *where, str(bin_dir / program), *SMALL, *threads,
            "--run-dir", run, *flags]


def on_one_host() -> dict[str, str]:
    """The environment of mpirun on this host alone."""
    hidden = ("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_btl", "OMPI_MCA_pml")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}


def train(ranks: int, run: str, *flags: str, stage: int = 1, nodes: str = "", one_host: bool = False) -> str:
    """Trains, and returns what was printed."""
    command = train_command(ranks, run, *flags, stage=stage, nodes=nodes)
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=time_left(),
                                env=on_one_host() if one_host else None)
    except subprocess.TimeoutExpired as hung:
        raise SystemExit(f"cluster_test.py: hangs: {' '.join(command)}\n{(hung.stdout or b'').decode(errors='replace')}") from None
    check(result.returncode == 0, "exit code", result.returncode, result.stdout)
    where = "1 node," if one_host else f"{ranks} nodes,"
    check(f"machine: {ranks} ranks on {where}" in result.stdout, "not on", where, result.stdout)
    return result.stdout


def losses(run: str) -> list[float]:
    lines = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def file_hash(run: str) -> str:
    """The hashes of the weights and moments of the newest checkpoint."""
    manifest = json.loads(Path(run, "latest/manifest.json").read_text())
    return manifest["xxh3_128"]


def sent_by(node: int) -> int:
    """The bytes that the kernel has counted on the node's link."""
    output = subprocess.run(["ip", "-s", "-j", "link", "show", f"node{node}"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)[0]["stats64"]["rx"]["bytes"]


def bytes_per_step(ranks: int, run: str, *flags: str) -> list[float]:
    """Sent by each node in a step: the difference between a long run and a short one, which start and end alike."""
    sent = []
    for steps in (2, 12):
        before = [sent_by(node + 1) for node in range(ranks)]
        train(ranks, f"{run}{steps}", "--steps", str(steps), *flags)
        sent.append([sent_by(node + 1) - before[node] for node in range(ranks)])
    return [(long - short) / 10 for short, long in zip(*sent)]


def check_bytes(ranks: int, run: str, *flags: str) -> None:
    measured = bytes_per_step(ranks, run, *flags)
    lines = Path(f"{run}12", "metrics.jsonl").read_text().splitlines()
    arena = json.loads(lines[-1])["bytes_reduced"]
    formula = 2 * (ranks - 1) / ranks * arena
    print(f"{ranks} nodes: a node sends {', '.join(f'{each:,.0f}' for each in measured)} bytes a step; 2(N-1)/N of the arena: "
          f"{formula:,.0f}", flush=True)
    # Headers of packets, acknowledgements of what is received, and small messages: up to 5 %.
    for each in measured:
        check(formula <= each <= 1.05 * formula + 4096, "expected", formula, "bytes or up to 5 % more, not", each)


def same_losses(run: str, other: str, steps: int) -> None:
    check(len(losses(run)) == steps, "expected", steps, "losses, not", losses(run))
    check(losses(run) == losses(other), "losses differ:", losses(run), losses(other))


def two_nodes() -> None:
    """Two nodes have the losses of two ranks on one host, and their gradients cross the link."""
    check_bytes(2, "two")
    train(2, "one", "--steps", "12", one_host=True)
    same_losses("two12", "one", 12)


def four_nodes() -> None:
    """The same on four nodes, stage 3 on two and four, and each synchronisation in turn."""
    for comm in ("flat", "overlapped", "zero1"):
        check_bytes(4, comm, "--comm", comm)
        train(4, f"one-{comm}", "--steps", "12", "--comm", comm, one_host=True)
        same_losses(f"{comm}12", f"one-{comm}", 12)
    for ranks in (2, 4):
        train(ranks, f"gpu{ranks}", "--steps", "4", stage=3)
        train(ranks, f"one-gpu{ranks}", "--steps", "4", stage=3, one_host=True)
        same_losses(f"gpu{ranks}", f"one-gpu{ranks}", 4)
        print(f"stage 3, {ranks} nodes: the losses of {ranks} ranks on one host", flush=True)


def other_numbers_of_nodes() -> None:
    """A reproducible run that moves from four nodes to two and to one host has the bits of one that stays."""
    flags = ["--reproducible", "--steps", "9"]
    train(2, "stays", *flags, one_host=True)
    train(4, "moves", *flags, "--stop-after", "3")
    train(2, "moves", *flags, "--stop-after", "6", "--resume", nodes="node2,node4")
    train(2, "moves", *flags, "--resume", one_host=True)
    same_losses("moves", "stays", 9)
    check(file_hash("moves") == file_hash("stays"), "the checkpoints differ")
    print("4 nodes, 2 nodes, 1 host: the bits of a run that stays", flush=True)


def refused_after() -> float:
    """The microseconds until node2 has refused a connection: its answer is delayed, the request is not."""
    start = time.monotonic()
    try:
        socket.create_connection(("node2", 9), timeout=time_left()).close()
    except ConnectionRefusedError:
        return 1e6 * (time.monotonic() - start)
    raise SystemExit("cluster_test.py: node2 has accepted a connection")


def delayed_link() -> None:
    """No answer of a node comes before --latency is over, and training has the losses of two ranks on one host."""
    fastest = min(refused_after() for _ in range(20))
    check(LATENCY <= fastest, "expected an answer after", LATENCY, "us at the earliest, not", fastest)
    train(2, "delayed", "--steps", "4")
    train(2, "one", "--steps", "4", one_host=True)
    same_losses("delayed", "one", 4)
    print(f"--latency {LATENCY}: the fastest of 20 answers came after {fastest:.0f} us", flush=True)


def short_burst() -> None:
    """A link that was idle sends no more at once than --burst, or two packets."""
    with socket.create_server(("", 5000)) as server:
        node = subprocess.Popen([ROOT / "scripts/cluster/on_node.sh", "node1", f"{sys.executable} -c {shlex.quote(SENDER)}"],
                                stdout=subprocess.PIPE, text=True)
        server.settimeout(60)
        head, _ = server.accept()
        with head:
            received = 0
            while received < MESSAGE:
                received += len(head.recv(MESSAGE))
            head.sendall(b"x")
            milliseconds = 1e3 * float(node.communicate(timeout=time_left())[0])
    least = 1e3 * (MESSAGE - 2 * 6144) * 8e-9 / BANDWIDTH  # the node's end and the head's
    check(milliseconds >= least, "expected", MESSAGE, "bytes after", least, "ms at the earliest, not", milliseconds)
    print(f"--bandwidth {BANDWIDTH} --burst {BURST}: {MESSAGE:,} bytes take {milliseconds:.0f} ms", flush=True)


def lose_node(run: str, stage: int, lose: Callable[[], None]) -> None:
    """Loses node 3 of four in the middle of a run, and resumes it on two nodes."""
    os.environ |= SHORT_SILENCE
    flags = ["--reproducible", "--steps", "100000", "--checkpoint-every", "10", "--watchdog-seconds", str(WATCHDOG)]
    with Path(f"{run}.out").open("w", encoding="utf-8") as output:
        ranks = subprocess.Popen(train_command(4, run, *flags, stage=stage), stdout=output, stderr=subprocess.STDOUT)
        wait_until(lambda: newest(run) >= 20 or ranks.poll() is not None, time_left())
        check(newest(run) >= 20 and ranks.poll() is None, "no checkpoint:", Path(f"{run}.out").read_text())
        lose()
        start = time.monotonic()
        try:
            code = ranks.wait(timeout=time_left())
        except subprocess.TimeoutExpired:
            ranks.kill()
            check(False, "hangs:", Path(f"{run}.out").read_text(), ranks_left())
    seconds = time.monotonic() - start
    check(code != 0, "exit code 0")
    text = Path(f"{run}.out").read_text()
    check(any(line in text for line in LOST), "mpirun does not say what has happened:", text)
    # Ranks that nobody can reach end by their own watchdog.
    check(wait_until(lambda: not ranks_left(), VANISH), "left behind:", ranks_left())
    step = newest(run)
    train(2, run, *flags, "--resume", "--stop-after", str(step + 5), stage=stage, nodes="node1,node2")
    train(2, f"{run}-stays", *flags, "--stop-after", str(step + 5), stage=stage, one_host=True)
    check(file_hash(run) == file_hash(f"{run}-stays"), "the checkpoints differ")
    print(f"{run}: all ended {seconds:.1f} s later, exit code {code}; resumed from step {step} on 2 nodes, with the bits of a run "
          "that stays", flush=True)


def killed_node() -> None:
    """All processes of a node are killed: nobody hangs, nobody is left, the run goes on on fewer nodes."""
    lose_node("killed", 1, lambda: kill_node("node3"))


def killed_node_of_stage3() -> None:
    """The same at stage 3."""
    lose_node("killed3", 3, lambda: kill_node("node3"))


def lost_link() -> None:
    """A node's link goes down, and nothing reaches it or comes from it."""
    lose_node("link", 1, lambda: take_down_link("node3"))


NODES = {two_nodes: 2, four_nodes: 4, other_numbers_of_nodes: 4, killed_node: 4, killed_node_of_stage3: 4, lost_link: 4,
         delayed_link: 2, short_burst: 2, teardown: 0}
TESTS = {function.__name__: function for function in NODES}


def main() -> int:
    global bin_dir
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="tests:\n" + "\n".join(f"  {name}: {test.__doc__}" for name, test in TESTS.items()))
    parser.add_argument("bin", type=Path, help="the folder of the programs, such as build/release/bin")
    parser.add_argument("test", choices=TESTS, metavar="TEST")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    bin_dir = arguments.bin.resolve()
    test = TESTS[arguments.test]
    if test is delayed_link and not os.access("/dev/net/tun", os.W_OK):
        return skip("no /dev/net/tun")
    if not arguments.inside:
        permitted = subprocess.run([CLUSTER, "--check"], stdout=subprocess.PIPE, text=True, timeout=60)
        if permitted.returncode:
            return skip(permitted.stdout)
    if arguments.inside or not NODES[test]:
        test()
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        return run_inside(NODES[test], arguments.test, scratch)


def run_inside(nodes: int, test: str, scratch: str) -> int:
    link = {delayed_link.__name__: ["--latency", LATENCY],
            short_burst.__name__: ["--bandwidth", BANDWIDTH, "--burst", BURST]}.get(test, [])
    cluster = start_cluster("--nodes", nodes, *link, sys.executable, Path(__file__).resolve(), bin_dir, test, "--inside", cwd=scratch)
    try:
        return cluster.wait(timeout=CLUSTER_LIMIT)
    except subprocess.TimeoutExpired:
        check(False, "the cluster has not ended within", CLUSTER_LIMIT, "seconds")
        return 1
    finally:
        end_cluster(cluster)


def skip(reason: str) -> int:
    print("cluster_test.py: skipped:", reason.strip())
    return 77


if __name__ == "__main__":
    sys.exit(main())
