"""Runs the check lines of a lab: tests of the product, on one rank or several."""

import re
from dataclasses import dataclass
from pathlib import Path

from kit import building, commands, test_output
from kit.lab_file import Check

SECONDS = 300.0  # the limit of one test program

# As in tests/CMakeLists.txt: fresh memory is filled with a pattern, waiting threads and ranks sleep.
ENVIRONMENT = {"MALLOC_PERTURB_": "128", "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl_base_warn_component_unused": "0"}


# What a message of the emulator asks for, whatever the check is about.
_OF_THE_EMULATOR = {
    r"no barrier in between|which is uninitialised": "A barrier is missing: what one thread writes to a shared array, another reads "
                                                     "only behind a barrier; and before it is written again, all have read it.",
    r"calls __syncthreads\w* .*while thread": "All threads of a block must reach the same barrier: it may not be in a branch that some skip.",
    r"has exited, but thread": "All threads that a barrier or a shuffle waits for must reach it: those without work return behind it.",
    r"beyond its \d+ elements": "An index is beyond the shared array that is named. Which threads have an element there?",
    r"beyond an allocation": "An index is beyond an array of device memory; the message counts the kernel's arguments from 1. Threads "
                             "without an element must not read or write.",
}


@dataclass(frozen=True)
class Outcome:
    status: str   # passed, failed, crashed, hung or not_built
    message: str  # why, in a few lines; empty if passed
    seconds: float

    @property
    def passed(self) -> bool:
        return self.status == "passed"


def run_check(build_dir: Path, check: Check, rank: int | None = None, runner: commands.Runner = commands.run,
              seconds: float = SECONDS) -> Outcome:
    """Runs a check once: on `rank` ranks, or without mpirun if that is None. The test program must have been built."""
    program = build_dir / "bin" / check.target
    if not program.is_file():
        return Outcome("not_built", f"{check.target} has not been built", 0)
    command = [*launcher(build_dir, rank), str(program), f"--gtest_filter={check.filter}", "--gtest_color=no"]
    ended = runner(command, build_dir, ENVIRONMENT, seconds)
    status, message = judge(check, ended)
    if message and rank is not None:
        message = f"on {rank} rank{'s' if rank > 1 else ''}: {message}"
    return Outcome(status, message, ended.seconds)


def run_on_all(build_dir: Path, check: Check, runner: commands.Runner = commands.run,
               seconds: float = SECONDS) -> Outcome:
    """Runs a check on each of its numbers of ranks, until one does not pass."""
    total = 0.0
    for rank in check.ranks or [None]:
        outcome = run_check(build_dir, check, rank, runner, seconds)
        total += outcome.seconds
        if not outcome.passed:
            return Outcome(outcome.status, outcome.message, total)
    return Outcome("passed", "", total)


def hints(check: Check, message: str) -> list[str]:
    """The hints that fit a message: those for the emulator's words, or else the check's own."""
    return [hint for words, hint in _OF_THE_EMULATOR.items() if re.search(words, message)] or check.hint.splitlines()


def judge(check: Check, ended: commands.Ended) -> tuple[str, str]:
    """Status and message of a test program that has ended."""
    output = ended.output
    test = test_output.running(output)
    inside = f" in {test}" if test else ""
    if ended.stopped == "time":
        return "hung", f"not done after {ended.seconds:.0f} s{inside}"
    if ended.stopped:
        return "crashed", f"ended by its limit: {ended.stopped}{inside}"
    failure = test_output.failure(output)
    ended_by = test_output.signal_of(output, ended.signal)
    if ended_by and not failure:
        reason = test_output.thrown(output)
        return "crashed", f"{ended_by}{inside}" + (f": {reason}" if reason else "")
    if ended.exit_code != 0:
        return "failed", failure or _last_lines(output) or f"exit code {ended.exit_code}"
    if test_output.tests_run(output) > 0:
        return "passed", ""
    if reason := test_output.skip_reason(output):
        return "failed", f"skipped: {reason}"
    return "failed", f"{check.target} has no test {check.filter}"


def launcher(build_dir: Path, rank: int | None) -> list[str]:
    """What precedes a program that runs on `rank` ranks."""
    if rank is None:
        return []
    mpirun = building.cached(build_dir, "MPIEXEC_EXECUTABLE") or "mpirun"
    return [mpirun, "-np", str(rank), "--oversubscribe", "--bind-to", "none"]


def _last_lines(output: str) -> str:
    return "\n".join(line[:400] for line in output.strip().splitlines()[-5:])
