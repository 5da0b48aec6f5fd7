"""Starts and ends clusters for the tests, and finds what is left of them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "scripts/cluster/cluster.sh"
# In seconds, for a whole test, on a machine with other work; ctest ends it after 600.
LIMIT = 480                 # of all runs inside a cluster together: one that takes longer counts as hung
CLUSTER_LIMIT = 540         # of the cluster around them
VANISH = 60                 # for processes to end after the cluster
# By default mpirun waits for a lost node for minutes; run_resilient.sh sets 25 s.
SHORT_SILENCE = {"OMPI_MCA_oob_tcp_keepalive_time": "2", "OMPI_MCA_oob_tcp_keepalive_intvl": "1",
                 "OMPI_MCA_oob_tcp_keepalive_probes": "2"}
# What mpirun says when its connection to a node breaks, or when ssh, here on_node.sh, ends.
LOST = ("ORTE has lost communication with a remote daemon", "ORTE was unable to reliably start one or more daemons")
ALL_RANKS = ("stage1_train", "stage3_train_em", "orted", "mpirun")  # names in the process table have 15 characters
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1        # <linux/prctl.h>
begin = time.monotonic()


def check(condition: bool, *what: object) -> None:
    if not condition:
        raise SystemExit(f"{Path(sys.argv[0]).name}: " + " ".join(map(str, what)))


def time_left() -> float:
    return max(1.0, begin + LIMIT - time.monotonic())


def wait_until(done: Callable[[], bool], seconds: float, interval: float = 0.1) -> bool:
    """Returns False after so many seconds, of which those do not count in which this process was stopped."""
    waited, before = 0.0, time.monotonic()
    while not done():
        if waited > seconds:
            return False
        time.sleep(interval)
        now = time.monotonic()
        waited, before = waited + min(now - before, interval + 1), now
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


# Inside a cluster, on its head node, which sees the processes of all nodes.

def ranks_left() -> list[str]:
    """The ranks and launchers that still run."""
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text()
        except OSError:
            continue
        name, state = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2]
        if state != "Z" and name in ALL_RANKS:
            left.append(f"{name} ({process.name})")
    return left


def kill_node(node: str) -> None:
    """Kills all processes of a node."""
    os.kill(int(Path(os.environ["STAGEGPT_CLUSTER"], f"{node}.pid").read_text()), signal.SIGKILL)


def take_down_link(node: str) -> None:
    """Nothing reaches the node from now on, nor comes from it."""
    subprocess.run(["ip", "link", "set", node, "down"], check=True)


def newest(run: str) -> int:
    """The step of a run's newest checkpoint; 0 if it has none."""
    names = [path.name for path in Path(run, "checkpoints").glob("step_????????")]
    return max((int(name[5:]) for name in names), default=0)
