"""`lab report`"""

import argparse
from pathlib import Path

from kit import report, starter
from kit.lab_file import LabError


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=Path("report"), metavar="DIR",
                        help="where to write it (default: report)")
    parser.add_argument("--reference", type=Path, metavar="BUILD",
                        help="a build directory to compare with (default: one of the original, built once)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N",
                        help="runs of each program, in turns (default: 3)")
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="flags of stageN_train, such as -- --n-layer 4")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    mark = starter.mark_of(root)
    if not mark:
        raise LabError("`lab report` works in a folder made by `lab start`")
    return report.run(root, mark, arguments.output, arguments.reference and arguments.reference.resolve(),
                      ["--repeats", str(arguments.repeats)], arguments.flags)
