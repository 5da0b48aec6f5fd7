"""`lab start N --dir PATH`"""

import argparse
from pathlib import Path

from kit import report, starter, submission
from kit.lab_file import LabError, numbered


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=int, metavar="N", help="the number of the lab")
    parser.add_argument("--dir", type=Path, required=True, metavar="PATH", help="the folder to make")
    parser.add_argument("--student", metavar="ID", help="who submits (default: `lab submit` must be given it)")
    parser.add_argument("--no-reference", action="store_true",
                        help="do not build now what `lab report` compares with; it is built when it is needed")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    if starter.mark_of(root):
        raise LabError("this folder is a lab itself; `labs/lab start` works in the source tree")
    lab = numbered(root, arguments.number)
    student = None if arguments.student is None else submission.student_id(arguments.student)
    target = starter.start(root, lab, arguments.dir, student)
    count = sum(len(written.cuts) for written in lab.write)
    print(f"Lab {lab.number}, {lab.title}, is in {target}")
    files = ", ".join(written.path for written in lab.write)
    print(f"{count} function{'s are' if count > 1 else ' is'} yours to write, in {files}")
    print("Read HANDOUT.md there; then ./lab check", flush=True)
    mark = starter.mark_of(target)
    if not arguments.no_reference and (stages := report.stages(mark.report)):
        print("Building the reference for `lab report`, once; Ctrl-C leaves that for later", flush=True)
        try:
            report.reference(root, mark.state, report.programs(stages))
        except KeyboardInterrupt:
            print("\nThe reference will be built when it is needed.")
    return 0
