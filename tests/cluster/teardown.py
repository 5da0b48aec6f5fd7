"""The end of a cluster: by itself, by a signal, and by a signal that comes early."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from clusters import VANISH, check, end_cluster, processes_of, start_cluster, time_left, wait_until


def host_links() -> set[str]:
    """The links of this host whose names are those of a cluster."""
    links = subprocess.run(["ip", "-j", "link"], check=True, stdout=subprocess.PIPE).stdout
    names = {link["ifname"] for link in json.loads(links)}
    return {name for name in names if re.fullmatch(r"cluster|head|node\d+", name)}


def first_line(output: IO[str]) -> str:
    ready, _, _ = select.select([output], [], [], time_left())
    return output.readline().strip() if ready else ""


def clean_up(cluster: subprocess.Popen[str], folder: str) -> None:
    """After a check that has failed, too."""
    end_cluster(cluster)
    for process in processes_of(folder) if folder else []:
        with contextlib.suppress(ProcessLookupError):  # ended with another one
            os.kill(int(process), signal.SIGKILL)


def end_by(ending: int) -> None:
    """Starts a cluster, ends it by a signal, or with exit code 7 if `ending` is 0, and looks for what is left."""
    inside = "echo $STAGEGPT_CLUSTER; setsid sleep 1000 & " + ("exit 7" if ending == 0 else "exec sleep 1000")
    cluster = start_cluster("--nodes", 3, "bash", "-c", inside, output=subprocess.PIPE)
    folder = ""
    try:
        assert cluster.stdout is not None
        folder = first_line(cluster.stdout)
        check(bool(folder), "the cluster has not started")
        if ending == signal.SIGINT:  # as a terminal sends it
            os.killpg(cluster.pid, ending)
        elif ending != 0:
            check(bool(processes_of(folder)), "no process to look for")
            cluster.send_signal(ending)
        code = cluster.wait(timeout=time_left())
        check(ending != 0 or code == 7, "the exit code is the command's, not", code)
        check(ending == 0 or code != 0, "exit code 0")
        check(wait_until(lambda: not processes_of(folder), VANISH), "processes left behind after", ending, processes_of(folder))
        if ending == signal.SIGKILL:
            shutil.rmtree(folder)
        check(not Path(folder).exists(), "left behind:", folder)
    finally:
        clean_up(cluster, folder)


# In place of unshare: the head node starts when the file `go` exists.
SLOW_UNSHARE = """#!/bin/sh
case "$*" in *--as-head*) : >"{0}/reached"; until [ -e "{0}/go" ]; do sleep 0.05; done ;; esac
exec {1} "$@"
"""


def end_early(ending: int) -> None:
    """Ends a cluster by a signal that comes before the head node has started."""
    with tempfile.TemporaryDirectory() as scratch:
        unshare = Path(scratch, "unshare")
        unshare.write_text(SLOW_UNSHARE.format(scratch, shutil.which("unshare")))
        unshare.chmod(0o755)
        environment = os.environ | {"PATH": f"{scratch}:{os.environ['PATH']}", "TMPDIR": scratch}
        cluster = start_cluster("sleep", 1000, environment=environment)
        folder = ""
        try:
            check(wait_until(Path(scratch, "reached").exists, time_left()), "the cluster has not started")
            folder = str(next(Path(scratch).glob("tmp.*")))
            cluster.send_signal(ending)
            if ending == signal.SIGKILL:
                cluster.wait(timeout=time_left())
                Path(scratch, "go").touch()
            check(wait_until(lambda: cluster.poll() is not None, VANISH), "an early signal is lost:", ending)
            check(cluster.returncode != 0, "exit code 0")
            check(wait_until(lambda: not processes_of(folder), VANISH), "processes left behind after an early", ending)
            check(ending == signal.SIGKILL or not Path(folder).exists(), "left behind:", folder)
        finally:
            clean_up(cluster, folder)


def teardown() -> None:
    """However the script ends, no process and no link is left, and it can be started again."""
    links = host_links()
    for ending in (0, signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        end_by(ending)
    for early in (signal.SIGTERM, signal.SIGKILL):
        end_early(early)
    check(host_links() == links, "links left behind:", host_links() - links)
    print("nothing left behind after an end, SIGTERM, Ctrl-C and SIGKILL", flush=True)
