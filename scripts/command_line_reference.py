#!/usr/bin/env python3
"""Writes docs/command_line.md: every flag of every program, as --help prints it.

    ./scripts/command_line_reference.py build/release/bin            # after a change of a flag or of its help
    ./scripts/command_line_reference.py build/release/bin --check    # exits with 1 if the file is out of date

The argument is the directory of the programs. For stages 2 and 3 the emulated programs are used, which every build has.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/command_line.md"
STAGES = {"0": "stage0_{}", "1": "stage1_{}", "2": "stage2_{}_emulated", "3": "stage3_{}_emulated"}
JOBS = ["train", "generate", "evaluate", "inspect", "verify", "bench"]
OTHERS = ["prepare_data", "convert_checkpoint", "compare_stages", "doctor"]

HEADER = """# Command-line reference

This page is made from the programs' `--help` by [`scripts/command_line_reference.py`](../scripts/command_line_reference.py); a
test compares the two. Do not edit it by hand.

- Every program has `--help` and `--version`. Flags are written `--steps 100` or `--steps=100`. Whole numbers may have a power of ten:
  `--steps 1e4`. Of a flag that is given more than once, the last value counts; `--input` and `--stop` collect their values.
- Each job has one program per stage: `stage0_train`, `stage1_train`, `stage2_train`, `stage3_train`. A flag that only some stages
  have names them in the column *stages*; the other stages refuse it.
- The programs that run on the emulator, `stage2_train_emulated` and `stage3_train_emulated`, have the same flags, and `--threads` in
  addition, which the programs for GPUs do not have; nor do these have `--emulator-report` and `--emulator-block`.
- A default that depends on other settings or on the machine is described in words.
"""


class BadInput(Exception):
    """An error that a user can correct."""


@dataclass(frozen=True)
class Flag:
    """One flag in the output of --help."""

    name: str
    value: str  # N, PATH, …; empty for a flag without a value
    default: str
    text: str


@dataclass
class Help:
    """The parsed output of a program's --help."""

    description: str
    groups: dict[str, list[Flag]]  # in their order
    footer: str


def ask(program: Path) -> str:
    """Runs a program with --help. MPI programs start without a launcher; leaks of the MPI library are ignored."""
    environment = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    try:
        run = subprocess.run([program.resolve(), "--help"], capture_output=True, text=True, env=environment, check=False)
    except OSError as error:
        raise BadInput(f"{program}: {error.strerror}") from None
    if run.returncode != 0:
        raise BadInput(f"{program} --help: exit code {run.returncode}: {run.stderr.strip()}")
    return run.stdout


def parse(text: str) -> Help:
    """Parses --help: groups of flags under titles. The text of a flag is on its line or on the lines after it."""
    lines = text.splitlines()
    help_ = Help(description=lines[0], groups={}, footer="")
    group, flags_end = None, 0
    for number, line in enumerate(lines):
        title = re.fullmatch(r"(\S.*):", line)
        flag = re.fullmatch(r"  (--[\w-]+)(?: (\[?[A-Z]+\]?))?(?:=(.*?))?(?: (\.\.\.))?(?:\s{2,}(.*)|\s*)", line)
        if title and number + 1 < len(lines) and lines[number + 1].startswith("  -"):
            group = help_.groups.setdefault(title.group(1), [])
        elif flag and group is not None:
            name, value, default, more, words = (part or "" for part in flag.groups())
            group.append(Flag(name, value + (" …" if more else ""), default, words.strip()))
        elif line.startswith(" " * 20) and group:
            last = group[-1]
            group[-1] = Flag(last.name, last.value, last.default, f"{last.text} {line.strip()}".strip())
        elif line.startswith("  --"):
            raise BadInput(f"--help has a line that this script cannot read: {line.strip()}")
        else:
            continue
        flags_end = number + 1
    help_.groups.pop("Options", None)  # -h, --help: every program has it
    help_.footer = "\n".join(lines[flags_end:]).strip()
    return help_


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


def table(rows: list[tuple[Flag, str]]) -> str:
    """A table of flags, with a column of stages if a row has any."""
    with_stages = any(stages for _, stages in rows)
    heads = ["flag", "default", "meaning"] + (["stages"] if with_stages else [])
    out = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for flag, stages in rows:
        cells = [f"`{flag.name}{' ' if flag.value else ''}{flag.value}`", f"`{flag.default}`" if flag.default else "",
                 cell(flag.text)] + ([stages] if with_stages else [])
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def tables(groups: dict[str, list[tuple[Flag, str]]]) -> str:
    return "\n".join(f"### {title}\n\n{table(rows)}" for title, rows in groups.items())


def footer(help_: Help) -> str:
    return f"\n```\n{help_.footer}\n```\n" if help_.footer else ""


def merge(of_stages: dict[str, Help]) -> dict[str, list[tuple[Flag, str]]]:
    """The flags of one job at all stages, each once, with the stages that have it (empty if all stages do)."""
    stages_of: dict[tuple[str, Flag], list[str]] = {}
    for stage, help_ in of_stages.items():
        for title, flags in help_.groups.items():
            for flag in flags:
                stages_of.setdefault((title, flag), []).append(stage)
    groups: dict[str, list[tuple[Flag, str]]] = {}
    for (title, flag), stages in stages_of.items():
        groups.setdefault(title, []).append((flag, "" if len(stages) == len(of_stages) else ", ".join(stages)))
    for rows in groups.values():  # rows of a flag that differs between stages are neighbours
        names = [flag.name for flag, _ in rows]
        rows.sort(key=lambda row: names.index(row[0].name))
    return groups


def reference(programs: Path) -> str:
    """The whole page."""
    out = HEADER
    for job in JOBS:
        helps = {stage: parse(ask(programs / name.format(job))) for stage, name in STAGES.items()}
        out += f"\n## stageN_{job}\n\n{helps['0'].description}\n\n{tables(merge(helps))}{footer(helps['0'])}"
    for name in OTHERS:
        help_ = parse(ask(programs / name))
        rows = {title: [(flag, "") for flag in flags] for title, flags in help_.groups.items()}
        out += f"\n## {name}\n\n{help_.description}\n\n{tables(rows)}{footer(help_)}"
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="directory of the programs, such as build/release/bin")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where the page is out of date")
    arguments = parser.parse_args()
    try:
        text = reference(arguments.programs)
    except BadInput as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if there == text:
        return 0
    sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), str(PAGE), "--help"))
    print(f"{PAGE} is out of date: {parser.prog} {arguments.programs} writes it anew", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
