"""`lab submit`"""

import argparse
from pathlib import Path

from kit import starter, submission
from kit.lab_file import LabError


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="the archive (default: submission.tar.gz in the lab's folder)")
    parser.add_argument("--student", metavar="ID", help="who submits, of a pair ID,ID; needed unless `lab start` was given it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    mark = starter.mark_of(root)
    if not mark:
        raise LabError("`lab submit` works in a folder made by `lab start`")
    student = mark.student if arguments.student is None else arguments.student
    if student is None:
        raise LabError("whose work is this? `./lab submit --student ID`, with the id by which your course knows you")
    work = submission.collect(root, starter.lab_of(root, None), submission.student_id(student), mark.state)
    target = arguments.output or root / "submission.tar.gz"
    submission.write(work, target)
    print(f"{target}: lab {work.lab}, by {work.student}")
    for name, content in work.files.items():
        print(f"  {len(content):>8} bytes  {name}")
    if "answers.md" not in work.files:
        print("warning: there is no answers.md")
    if work.unchanged:
        print(f"warning: not written yet: {', '.join(work.unchanged)}")
    return 0
