"""Starts and ends clusters for the tests, and finds what is left of them."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "scripts/cluster/cluster.sh"
# In seconds, for a whole test, on a machine with other work; ctest ends it after 600.
LIMIT = 480                 # of all runs inside a cluster together: one that takes longer counts as hung
CLUSTER_LIMIT = 540         # of the cluster around them
VANISH = 60                 # for processes to end after the cluster
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1        # <linux/prctl.h>
begin = time.monotonic()


def check(condition: bool, *what: object) -> None:
    if not condition:
        raise SystemExit("cluster_test.py: " + " ".join(map(str, what)))


def time_left() -> float:
    return max(1.0, begin + LIMIT - time.monotonic())


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def start_cluster(*arguments: object, output: int | None = None, cwd: str | None = None,
                  environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts cluster.sh, in a process group of its own. The kernel sends it SIGTERM when this process ends, even by SIGKILL."""
    return subprocess.Popen([str(each) for each in (CLUSTER, *arguments)], stdin=subprocess.DEVNULL, stdout=output,
                            cwd=cwd, env=environment, text=True, start_new_session=True,
                            preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))


def end_cluster(cluster: subprocess.Popen[str]) -> None:
    if cluster.poll() is None:
        cluster.terminate()
        try:
            cluster.wait(timeout=20)
        except subprocess.TimeoutExpired:
            cluster.kill()
            cluster.wait()


def processes_of(cluster: str) -> list[str]:
    """The processes that have this cluster in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"STAGEGPT_CLUSTER={cluster}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue
    return found
