"""Runs one command under limits, and says how it ended.

What is limited: time, memory, size of files, number of processes, output. As root, the command has a user id that
belongs to no one else, and all processes of that user are killed at its end. Where the kernel allows, it has no network,
empty temporary directories, and does not see the directories in `cover`. docs/grading.md says what that does not prevent.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kit.commands import Ended

LABS = Path(__file__).resolve().parents[1]
MIB = 1 << 20

# Nothing else of the grader's environment reaches a command.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_WAIT_POLICY": "passive",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_plm_rsh_agent": "false",
               "CCACHE_DISABLE": "1"}


@dataclass(frozen=True)
class Limits:
    seconds: float = 60
    memory_bytes: int = 4096 * MIB  # of each process, and of all together
    file_bytes: int = 512 * MIB     # of each file
    disk_bytes: int = 1024 * MIB    # of all files in the scratch directory
    output_bytes: int = 16 * MIB
    processes: int = 256            # and threads


@dataclass(frozen=True)
class Place:
    """Where a command runs and what it sees."""
    scratch: Path                   # its own directory: HOME, and where it may write
    directory: Path | None = None   # its working directory; None: the scratch directory
    own: list[Path] = field(default_factory=list)    # directories that it may change (as root: that it is given)
    cover: list[Path] = field(default_factory=list)  # directories that it must not see
    show: list[Path] = field(default_factory=list)   # directories that it sees although they lie below a covered one


@dataclass(frozen=True)
class Finished(Ended):
    """A command that has ended, and with it all that it started. It may be `stopped` for "time", "memory", "disk" or "output", and
    the first and the last 32 KiB of its output are kept."""
    command: list[str]
    output_bytes: int
    peak_bytes: int        # of memory, looked at ten times a second
    isolation: dict[str, bool]  # which parts the kernel allowed: "user" or "processes", "network", "files"
    limits: Limits

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.stopped is None

    @property
    def status(self) -> str:
        """passed, failed, crashed or hung."""
        if self.ok:
            return "passed"
        if self.stopped == "time" or (self.stopped is None and self.watchdog):
            return "hung"
        return "crashed" if self.stopped or self.crash() else "failed"

    @property
    def message(self) -> str:
        """One line: why the command did not succeed."""
        if self.ok:
            return ""
        if self.watchdog and self.stopped in (None, "time"):
            return self.watchdog
        if self.stopped:
            return self._limit_exceeded()
        said = first_complaint(self.output, Path(self.command[0]).name)
        return self.crash() or said or f"exit code {self.exit_code}"

    @property
    def watchdog(self) -> str:
        """The rank and the phase that the product's watchdog has reported; or ""."""
        found = _WATCHDOG.search(self.output)
        return found.group().removesuffix(" (--watchdog-seconds)") if found else ""

    def crash(self) -> str:
        """The signal that ended the command or one of its ranks, with the place if it was printed; or ""."""
        number, rank = self.signal, ""
        if number is None and (of_rank := _RANK_SIGNAL.search(self.output)):
            number, rank = int(of_rank["signal"]), f"rank {of_rank['rank']}: "
        if number is None and self.exit_code is not None and 128 < self.exit_code < 128 + signal.NSIG:
            number = self.exit_code - 128  # as a shell reports it
        if number is None:
            return ""
        place = _KERNEL_LINE.search(self.output) or _BACKTRACE_LINE.search(self.output)
        detail = f"; {place.group().strip()}" if place else ""
        return f"{rank}{signal_name(number)}{detail}"

    def _limit_exceeded(self) -> str:
        allowed = {"time": f"did not end within {self.limits.seconds:g} s",
                   "memory": f"used more than {self.limits.memory_bytes // MIB} MiB of memory",
                   "disk": f"wrote more than {self.limits.disk_bytes // MIB} MiB, or more than 10,000 files",
                   "output": f"printed more than {self.limits.output_bytes // MIB} MiB"}
        kernel = _KERNEL_LINE.search(self.output)
        return allowed[self.stopped or ""] + (f"; {kernel.group().strip()}" if kernel else "")


# The product's watchdog (stage1_mpi/watchdog.cpp), Open MPI's mpirun, and the emulator (stage2_cuda/emulation).
_WATCHDOG = re.compile(r'rank \d+ (?:has been in|was stopped in|has waited for other ranks in) "[^"\n]*" for \d+ s '
                       r"\(--watchdog-seconds\)")
_RANK_SIGNAL = re.compile(r"process rank (?P<rank>\d+) .*exited on signal (?P<signal>\d+)")
_KERNEL_LINE = re.compile(r"kernel [\w<>:, ]+, block \([\d,]+\), thread \([\d,]+\): [^\n]{1,300}")
_BACKTRACE_LINE = re.compile(r"^ *(?:#\d+ |at |\[ *\d+\] |SUMMARY: )[^\n]{1,200}", re.MULTILINE)


def signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"


def first_complaint(output: str, program: str) -> str:
    """The line of an output that most likely says what is wrong, such as `PROGRAM: why`."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (rf"^{re.escape(program)}: ", r"error|Error", r"[Ff]ailure", r": "):
        for line in lines:
            if re.search(pattern, line):
                return line[:300]
    return lines[-1][:300] if lines else ""


def run(command: list[str], place: Place, limits: Limits | None = None,
        environment: dict[str, str] | None = None) -> Finished:
    """Runs a command to its end. Raises RuntimeError if the warden itself fails, never because of the command."""
    limits = limits or Limits()
    place.scratch.mkdir(parents=True, exist_ok=True)
    show = [place.scratch, *place.own, *place.show, *([place.directory] if place.directory else [])]
    request = {"command": command, "directory": str(place.directory or place.scratch), "scratch": str(place.scratch),
               "own": [str(path) for path in place.own], "cover": [str(path) for path in place.cover],
               "show": [str(path) for path in show], "environment": ENVIRONMENT | (environment or {}),
               "grader": os.getpid(), **asdict(limits)}
    with tempfile.TemporaryFile() as errors:
        warden = subprocess.Popen([sys.executable, "-E", "-s", "-m", "kit.warden"], cwd=LABS, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        try:
            reply, _ = warden.communicate(json.dumps(request).encode())
        except BaseException:  # Ctrl-C: the command ends before the grader does
            warden.terminate()
            warden.wait()
            raise
        if warden.returncode != 0:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"the warden of {command[0]} failed: {said[-1] if said else warden.returncode}")
    return Finished(command=command, limits=limits, **json.loads(reply))


