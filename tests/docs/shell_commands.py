"""Extracts the commands from a block of code, and finds the project's programs, scripts and flags in them."""

import re
import shlex
from dataclasses import dataclass

# Possible first words of a line of commands, besides paths. If the first line of a block begins with another
# word, the block does not contain commands.
STARTERS = {"mpirun", "sbatch", "cmake", "ctest", "python3", "pip", "git", "lm_eval", "tensorboard", "gdb", "export", "module", "mkdir", "cp",
            "rm", "tar", "ompi_info", "for", "done", "xargs", "cd", "head", "tail", "cat", "awk", "cmp", "lscpu"}
VARIABLE = re.compile(r"[A-Z]\w*=")
PROGRAM = re.compile(r"(?:\./)?build/[\w-]+/bin/(\w+)|(stage[0-3]_\w+|compare_stages)")  # the latter by PATH
SCRIPT = re.compile(r"(?:\./)?((?:scripts|bench|tests|common|tools|stage\w+)/[\w./-]+\.(?:sh|py|sbatch))")


@dataclass
class Call:
    """A program or script of this project, with its arguments."""

    line: int
    name: str  # the name of a program, or the path of a script
    is_script: bool
    arguments: list[str]


def is_command(line: str) -> bool:
    first = line.removeprefix("$ ").split(" ")[0]
    by_path = PROGRAM.fullmatch(first) is not None and " --" in line  # output may begin with a program's name
    return (first in STARTERS or by_path or VARIABLE.match(first) is not None
            or first.startswith(("./", "build/", "scripts/", "tests/")))


def command_lines(first_line: int, block: str) -> list[tuple[int, str]]:
    """The command lines of a block, or none. A line that ends in \\ is joined with the next."""
    lines = [line for line in enumerate(block.splitlines(), first_line) if line[1].strip() and not line[1].lstrip().startswith("#")]
    if not lines or not is_command(lines[0][1].strip()):
        return []
    joined: list[tuple[int, str]] = []
    continued = False
    for number, line in lines:
        text = line.strip().removeprefix("$ ")
        if continued:
            joined[-1] = (joined[-1][0], f"{joined[-1][1][:-1]} {text}")
        else:
            joined.append((number, text))
        continued = text.endswith("\\")
    return joined


def ours(word: str) -> tuple[str, bool] | None:
    """The name of a program or the path of a script, if a word of a command is one; and whether it is a script."""
    if program := PROGRAM.fullmatch(word):
        return program.group(1) or program.group(2), False
    if script := SCRIPT.fullmatch(word):
        return script.group(1), True
    return None


def calls(line: int, command: str) -> list[Call]:
    """The programs and scripts of this project in a command, each with its own arguments."""
    found: list[Call] = []
    foreign = False  # whether the words are arguments of another program, for example mpirun
    for word in shlex.split(command, comments=True):
        if (which := ours(word)) and not (word.isidentifier() and "--target" in command):  # of a build
            found.append(Call(line, *which, []))
            foreign = False
        elif word in STARTERS | {"&&", "|", ";"}:
            foreign = True
        elif found and not foreign:
            found[-1].arguments.append(word)
    return found
