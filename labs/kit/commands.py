"""Runs a command with limits of time and memory; nothing that it started outlives it."""

import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FILE_LIMIT = 512 << 20  # bytes of a file, the output among them
_KEPT = 200_000          # bytes of the output that are kept at each end


@dataclass(frozen=True)
class Ended:
    exit_code: int | None  # None: ended by a signal
    signal: int | None
    stopped: str | None    # the limit that ended it: "time"
    seconds: float
    output: str            # of both streams; the middle of a long one is left out


# command, working directory, additional environment, limit in seconds. The grader has its own, which isolates.
Runner = Callable[[list[str], Path, dict[str, str], float], Ended]


def run(command: list[str], directory: Path, environment: dict[str, str], seconds: float) -> Ended:
    """Runs a command in a session of its own, and kills what is left of it."""
    with tempfile.TemporaryFile() as output:
        begun = time.monotonic()
        process = subprocess.Popen(command, cwd=directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_limit)
        stopped = None
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            stopped = "time"
            process.terminate()  # mpirun ends its ranks
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        finally:
            _kill_session(process.pid)
            process.wait()
        code = process.returncode
        return Ended(code if code >= 0 else None, -code if code < 0 else None, stopped, time.monotonic() - begun,
                     _text(output))


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_LIMIT, _FILE_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # an endless loop may allocate
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))


def _kill_session(session: int) -> None:
    """Kills all processes of a session: ranks may have process groups of their own. Returns when none is left."""
    while processes := list(_processes_of(session)):
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _processes_of(session: int) -> Iterator[int]:
    """The processes of a session that have not ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _, _, its_session = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                yield int(stat.parent.name)


def _text(output) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(0)
    if size <= 2 * _KEPT:
        return output.read().decode(errors="replace")
    first = output.read(_KEPT).decode(errors="replace")
    output.seek(size - _KEPT)
    return f"{first}\n... ({size - 2 * _KEPT} bytes left out)\n{output.read().decode(errors='replace')}"
