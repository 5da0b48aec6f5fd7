"""The verbs `lab zoo list|start|record|check`: bugs to find, from labs/zoo (zoo_file.py)."""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path

from kit import curve, starter, zoo_curves, zoo_draw, zoo_grade, zoo_prove
from kit.lab_file import LabError
from kit.zoo_draw import Draw
from kit.zoo_file import BUDGET, Bug, all_bugs, changed_lines, named
from kit.zoo_tree import Copy, contents, judged, write

_MORE_BYTES = 1 << 20  # by which a changed file may be longer


def add_verbs(parser: argparse.ArgumentParser) -> None:
    """Adds the verbs below `lab zoo`; each sets `run`, which returns an exit code."""
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, function, text: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(run=function)
        return added

    added = verb("list", on_list, "the bugs: number, labs, symptom")
    added.add_argument("--answers", action="store_true", help="also what is wrong, where, and which test finds it")
    added = verb("start", on_start, "make a folder with a bug to find: the tree, a loss curve, the task")
    added.add_argument("bug", nargs="?", metavar="BUG", help="number or name of a bug")
    add_draw(added)
    added.add_argument("--dir", required=True, type=Path, metavar="PATH", help="the folder to make")
    added = verb("record", on_record, "record loss curves, with and without the bug, in labs/zoo/curves")
    added.add_argument("bugs", nargs="*", metavar="BUG", help="number or name (default: all)")
    added.add_argument("--work", type=Path, metavar="PATH", help="where to build (default: build/zoo)")
    added = verb("check", on_check, "check a student's fix; or, with --all, that each bug is found by its test")
    added.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="a folder made by `lab zoo start`")
    added.add_argument("--all", action="store_true", help="plant each bug, build, and run the test that finds it")
    added.add_argument("--only", action="append", default=[], metavar="BUG", help="as --all, for this bug; may be repeated")
    added.add_argument("--work", type=Path, metavar="PATH",
                       help="where to build (default: DIR itself; with --all, build/zoo). With DIR, only the fix is taken from "
                            "there, and it is built and tested isolated, as `lab grade` does: for what others hand in")
    add_draw(added)


def add_draw(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--lab", type=int, metavar="N", help="the lab of --student")
    verb.add_argument("--student", metavar="ID", help="what this id draws in --lab: the same bug and decoys each time")
    verb.add_argument("--which", type=int, default=1, metavar="K", help="the K-th bug that this student draws (default: 1)")


def on_list(arguments: argparse.Namespace, root: Path) -> int:
    for bug in all_bugs(root):
        print(f"{bug.number:>3}  lab {','.join(map(str, bug.labs)):<6} {bug.symptom}")
        if not arguments.answers:
            continue
        ranks = f"@{bug.caught.ranks}" if bug.caught.ranks else ""
        for label, text in (("name", bug.name), ("wrong", bug.title), ("where", ", ".join(bug.files())),
                            ("test", f"{bug.caught.target}{ranks} {bug.caught.filter}"), ("seen", bug.source)):
            print(f"       {label:<6} {text}")
    return 0


def on_start(arguments: argparse.Namespace, root: Path) -> int:
    if (arguments.bug is None) == (arguments.student is None):
        raise LabError("name a bug, or a lab and a student: lab zoo start 17, or lab zoo start --lab 4 --student ID")
    draw = zoo_draw.of_number(root, arguments.bug) if arguments.student is None else of_student(arguments, root)
    start(root, draw, arguments.dir)
    print(f"bug {draw.bug.number} is in {arguments.dir}: read TASK.md")
    return 0


def on_record(arguments: argparse.Namespace, root: Path) -> int:
    bugs = [named(root, which) for which in arguments.bugs] or all_bugs(root)
    zoo_curves.record(root, arguments.work or root / "build/zoo", bugs)
    return 0


def on_check(arguments: argparse.Namespace, root: Path) -> int:
    proves = arguments.all or bool(arguments.only)
    if proves == (arguments.dir is not None):
        raise LabError("name the folder of a bug, or give --all")
    if not proves:
        os.umask(0o022)  # isolated programs run as another user, and read what is built here
        has_draw = (arguments.lab, arguments.student) != (None, None)
        if has_draw and zoo_draw.of_folder(root, arguments.dir) != of_student(arguments, root):
            print(f"not accepted: the folder is not what {arguments.student} draws in lab {arguments.lab} (--which "
                  f"{arguments.which})")
            return 1
        return 0 if check_fix(root, arguments.dir, arguments.work) else 1
    bugs = [named(root, which) for which in arguments.only] if arguments.only else all_bugs(root)
    return zoo_prove.prove(root, arguments.work or root / "build/zoo", bugs)


def of_student(arguments: argparse.Namespace, root: Path) -> Draw:
    if arguments.lab is None or arguments.student is None:
        raise LabError("--lab and --student belong together, as --lab 4 --student ID")
    return zoo_draw.of_student(root, arguments.lab, arguments.student, arguments.which)


# ---- start ----

def start(root: Path, draw: Draw, target: Path) -> None:
    """Makes a student's folder, which must not exist: a git repository with one commit."""
    def filled(folder: Path) -> None:
        write(root, folder, draw.edits(root))
        (folder / zoo_draw.TICKET).write_text(draw.ticket())
        (folder / "proof.md").write_text(PROOF)
        curves = zoo_curves.recorded(root, draw.bug)
        (folder / "TASK.md").write_text(task(draw.bug, bool(curves)))
        if curves:
            (folder / "curve.svg").write_text(curve.svg(f"bug {draw.bug.number}", curves))

    starter.make(root, target, f"The tree with bug {draw.bug.number}", filled)


PROOF = """# What I found

## Symptom: what is wrong in a run, and with which settings it is right

## Experiments: for each, what I expected, the command, the lines of its output, and what they exclude

## Cause: file and line, what is wrong there, and how it makes this loss curve
"""

TASK = """# Bug {number}

The code of this tree has one mistake. Its tests and its build files are right. In about thirty other places it is written in other
words than the published tree, with the same results: comparing files does not find the mistake.

**What is seen.** {symptom}

{curves}
```sh
cmake --preset release
cmake --build --preset release --target {programs}
export PATH="$PWD/build/release/bin:$PATH"
{commands}
```

## What to do

1. Predict: which parts of the program can have this effect, and which cannot? Write it down before you look.
2. Find the mistake with a tool, not by reading all the code. The tools: the test programs ([testing](docs/testing.md)), `stageN_verify`,
   `--trace-steps` with `compare_stages` ([compare](docs/compare.md)), the emulator ([emulator](docs/emulator.md)), and runs in which
   fewer things can be wrong: one rank, one head, no dropout, another implementation of the same op.
3. Mend it. You may change at most {budget} lines, and no test.
4. Write `proof.md`: the symptom, the experiments with their output, the cause.

Hand in the fix and `proof.md`: each gives half of the points. In the source tree of the labs, `labs/lab zoo check` of this folder says
whether it is mended.
"""


CURVES = """`curve.svg` shows two runs of the commands below from the same seed: the healthy one in blue, the one with the mistake in red.
"""
NO_CURVES = """The commands below show it.
"""


def task(bug: Bug, has_curves: bool) -> str:
    commands = "\n".join(f"{line.text()} {'run' if index else '--run-dir run'}" for index, line in enumerate(bug.record))
    programs = " ".join(dict.fromkeys(line.program for line in bug.record))
    return TASK.format(number=bug.number, symptom=bug.symptom, curves=CURVES if has_curves else NO_CURVES, programs=programs,
                       commands=commands, budget=BUDGET)


# ---- check ----

@dataclass(frozen=True)
class Change:
    """What a student has changed in a folder."""
    complaint: str                                         # why it cannot be a fix, or ""
    lines: int = 0
    files: dict[str, bytes] = field(default_factory=dict)  # the changed ones


def change(root: Path, draw: Draw, directory: Path) -> Change:
    lines, files = 0, {}
    for path, before in contents(root, draw.edits(root)).items():
        student = directory / path
        if not student.is_file() or student.resolve() != directory.resolve() / path:
            return Change(f"{path} is not there any more, or is no plain file")
        if student.stat().st_size > len(before) + _MORE_BYTES:
            return Change(f"{path} has more than {_MORE_BYTES >> 20} MiB that are new")
        data = student.read_bytes()
        if data == before or path.endswith(".md"):
            continue
        if not path.startswith(("common/", "stage", "tools/")) or path.endswith(("CMakeLists.txt", "flags.txt")):
            return Change(f"{path} is changed, which is no code of the product")
        if data == (root / path).read_bytes():
            return Change(f"{path} is the published file: undo the mistake alone")
        files[path] = data
        lines += changed_lines(before.decode(errors="replace"), data.decode(errors="replace"))
    if lines == 0:
        return Change("nothing is changed")
    if lines > BUDGET:
        return Change(f"{lines} lines are changed, of which {BUDGET} are allowed", lines)
    return Change("", lines, files)


def check_fix(root: Path, directory: Path, work: Path | None = None) -> bool:
    """Prints whether the bug of a student's folder is mended. It is built there, or isolated in `work`."""
    draw = zoo_draw.of_folder(root, directory)
    bug = draw.bug
    changed = change(root, draw, directory)
    if changed.complaint:
        print(f"not accepted: {changed.complaint}")
        return False
    print(f"{changed.lines} of {BUDGET} lines are changed; building {bug.caught.target}", flush=True)
    if work is None:
        return is_mended(bug, Copy(root, directory.resolve()))
    with zoo_grade.IsolatedCopy(root, work, directory) as copy:
        copy.put_fix(bug, changed.files)
        return is_mended(bug, copy)


def is_mended(bug: Bug, copy: Copy) -> bool:
    """Builds a copy of the tree and runs the tests of the bug. Prints what they say."""
    try:
        copy.build([bug.caught.target])
    except LabError as error:
        print(error)
        return False
    for what, tests in (("the test that finds the bug", bug.caught.filter), ("tests that were right before", bug.also)):
        if not tests:
            continue
        ended = copy.test(bug.caught, tests)
        status, message = judged(bug.caught, tests, ended)
        print(f"{what}: {status}, {ended.seconds:.0f} s", flush=True)
        if status != "passed":
            print(message)
            return False
    print("The bug is mended. Hand in proof.md too.")
    return True
