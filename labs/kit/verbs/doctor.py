"""`lab doctor [N]`: what a lab needs of this machine, in the layout of scripts/doctor.sh, which calls it."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kit import checks, starter
from kit.lab_file import Lab, Trace

_DISK = 2 << 30  # bytes: the tests and programs of a lab, and those of the reference
_SECONDS = 60    # for mpirun, which answers in one

# A mark (ok, note, problem), a subject, what was found, and advice or an empty text.
Line = tuple[str, str, str, str]


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=int, nargs="?", metavar="N", help="the number of the lab (in the source tree)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    lab = starter.lab_of(root, arguments.number)
    lines = list(needs(lab))
    for mark, subject, found, advice in lines:
        print(f"{mark:<8} {subject:<17} {found}")
        if advice:
            print(f"{'':<26} -> {advice}")
    return 1 if any(mark == "problem" for mark, *_ in lines) else 0


def needs(lab: Lab) -> Iterator[Line]:
    """What the lab needs and this machine has."""
    yield "ok", "lab", f"{lab.number}, {lab.title}", ""
    yield from _python()
    yield from _git()
    ranks = most_ranks(lab)
    if ranks > 1:
        yield from _ranks(ranks)
    yield from _disk()
    if any(target.startswith(("stage2_", "stage3_", "device_")) for target in lab.targets()):
        yield from _gpu()


def most_ranks(lab: Lab) -> int:
    """The largest number of ranks of the lab's checks and traces."""
    of_traces = [measure.ranks or 1 for measure in lab.measures if isinstance(measure, Trace)]
    return max([1, *of_traces, *(rank for check in lab.checks for rank in check.ranks)])


def _python() -> Iterator[Line]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):
        yield "ok", "python", found, ""
    else:
        yield ("problem", "python", f"version {found}, 3.11 or newer is needed",
               "use Debian 12, Ubuntu 24.04, or install a newer python3")


def _git() -> Iterator[Line]:
    if shutil.which("git"):
        yield "ok", "git", "found", ""
    else:
        yield "problem", "git", "not found: a lab's folder is a git repository", "install the package git"


def _ranks(ranks: int) -> Iterator[Line]:
    """Whether mpirun can start as many ranks as the lab's tests have."""
    cores = len(os.sched_getaffinity(0))
    command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "true"]
    try:
        ended = subprocess.run(command, env=os.environ | checks.ENVIRONMENT, capture_output=True, text=True,
                               check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        yield "problem", "ranks", "mpirun not found", "./scripts/setup.sh installs Open MPI"
        return
    except subprocess.TimeoutExpired:
        yield "problem", "ranks", f"mpirun did not start {ranks} ranks in {_SECONDS} s", "docs/cluster.md helps"
        return
    if ended.returncode != 0:
        said = " ".join((ended.stderr or ended.stdout).split())[:200]
        yield "problem", "ranks", f"mpirun cannot start {ranks} ranks: {said}", "docs/cluster.md helps"
    elif cores < ranks:
        yield ("note", "ranks", f"{ranks} ranks start, and share {cores} cores",
               "tests pass; times of more ranks than cores say little")
    else:
        yield "ok", "ranks", f"{ranks} ranks start, on {cores} cores", ""


def _disk() -> Iterator[Line]:
    free = shutil.disk_usage(Path.home() if Path.home().is_dir() else "/").free
    if free >= _DISK:
        yield "ok", "home directory", f"{free >> 20} MiB free", ""
    else:
        yield ("note", "home directory", f"{free >> 20} MiB free",
               f"a lab and its reference take up to {_DISK >> 20} MiB; --dir and STAGEGPT_LABS_CACHE name other places")


def _gpu() -> Iterator[Line]:
    if shutil.which("nvidia-smi"):
        yield "ok", "gpu", "a driver is installed; scripts/gpu_check.sh tries the GPU", ""
    else:
        yield "note", "gpu", "none found", "the lab does not need one: its checks run on the emulator"
