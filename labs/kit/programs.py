"""Programs of the student's build and of the reference's, run under limits on the same input."""

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from kit import isolated
from kit.isolated import Finished, Limits, Place
from kit.lab_file import LabError

RESULT = "result.json"  # the standard output, apart from warnings
RESULT_BYTES = 16 << 20


@dataclass(frozen=True)
class Command:
    """PROGRAM [-np RANKS] [--] FLAGS..., as lab files write it."""
    program: str
    ranks: int | None  # None: without mpirun
    flags: list[str]

    @staticmethod
    def parse(words: list[str]) -> "Command":
        program, *flags = words
        ranks = None
        if flags[:1] == ["-np"]:
            if len(flags) < 2 or not re.fullmatch(r"[1-9]\d?", flags[1]):
                raise LabError(f"{' '.join(words)}: expected a number of ranks after -np")
            ranks, flags = int(flags[1]), flags[2:]
        return Command(program, ranks, flags[1:] if flags[:1] == ["--"] else flags)

    def with_flags(self, flags: list[str]) -> "Command":
        return replace(self, flags=flags)


@dataclass(frozen=True)
class Programs:
    """The programs of one build, and where they run."""
    directory: Path           # of the programs
    names: dict[str, str]     # as lab files write them, and as they are called
    place: Place              # its scratch directory is the parent of those of single runs
    limits: Limits = Limits()

    def path(self, name: str) -> Path:
        return self.directory / self.names.get(name, name)

    def run(self, command: Command, scratch: Path, seconds: float | None = None,
            variables: dict[str, str] | None = None) -> Finished:
        """Runs a program in `scratch`. Its standard output is in scratch/result.json. `variables` are for the program,
        not for what starts its ranks."""
        words = [str(self.path(command.program)), *command.flags]
        if variables:
            words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
        if command.ranks is not None:
            words = ["mpirun", "-np", str(command.ranks), "--oversubscribe", "--bind-to", "none", *words]
        limits = replace(self.limits, seconds=seconds or self.limits.seconds)
        finished = isolated.run(["sh", "-c", f'exec "$0" "$@" >{RESULT}', *words],
                                replace(self.place, scratch=scratch, show=[*self.place.show, self.directory]), limits)
        return replace(finished, command=[str(self.path(command.program)), *command.flags])


def read_result(top: Path, name: str = RESULT, most: int = RESULT_BYTES) -> bytes | None:
    """A file that a command has written below `top`, if it is a regular one: a link would lead to files of the grader.
    The command must have ended."""
    path = top
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            return None
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= most:
            return path.read_bytes()
    except OSError:
        pass
    return None
