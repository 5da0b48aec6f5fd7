"""`lab similar DIR`: which submissions share code with each other or with the solution.

A program is compared by its windows of `WINDOW` tokens, without its names and numbers, as in Schleimer, Wilkerson and Aiken,
"Winnowing", 2003: other names, comments and white space hide nothing. What the starter has does not count, nor what many
submissions have, because the task asks for it.
"""

import argparse
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

from kit import cpp, intake, lab_file, starter
from kit.grade import find_submissions, lab_of
from kit.intake import Refused
from kit.results import clean

WINDOW = 16
FEWEST = 20  # windows: below that, similar is no sign
SOLUTION = "the solution"


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("submissions", type=Path, metavar="DIR", help="a directory of submissions of one lab")
    parser.add_argument("--lab", type=int, metavar="N", help="the lab (default: the one whose files are there)")
    parser.add_argument("--least", type=int, default=50, metavar="PERCENT", help="show pairs that share as much (default: 50)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    labs = lab_file.all_labs(root)
    lab = lab_file.numbered(root, arguments.lab) if arguments.lab is not None else lab_of(arguments.submissions, labs)
    given = starter.students_files(lab)
    files = {SOLUTION: {name: (root / name).read_text() for name in given}}
    for path in find_submissions(arguments.submissions, lab):
        try:
            files[path.name] = {name: content.decode() for name, content in intake.read(path, lab, labs).files.items()}
        except Refused as error:
            print(f"{path.name}: {error}", file=sys.stderr)
    for share, *pair in pairs({who: windows(texts) for who, texts in files.items()}, windows(given), arguments.least):
        print(clean(f"{share:3} %  {'  '.join(pair)}"))
    return 0


def windows(files: dict[str, str]) -> set[tuple[str, ...]]:
    found = set()
    for text in files.values():
        tokens = [token.text if token.kind == "mark" else "" for token in cpp.tokenize(text)]
        found.update(tuple(tokens[i:i + WINDOW]) for i in range(len(tokens) - WINDOW + 1))
    return found


def pairs(own: dict[str, set], starters: set, least: int) -> list[tuple[int, str, str]]:
    """The share that two have in common of what the one with less has, in percent; the largest first. What the starter has does
    not count."""
    often = Counter(window for who, windows in own.items() if who != SOLUTION for window in windows)
    usual = {window for window, number in often.items() if number > max(2, len(own) / 10)}
    own = {who: windows - usual - starters for who, windows in own.items()}
    found = [(100 * len(own[a] & own[b]) // min(len(own[a]), len(own[b])), a, b) for a, b in combinations(own, 2)
             if min(len(own[a]), len(own[b])) >= FEWEST]
    return sorted((pair for pair in found if pair[0] >= least), reverse=True)
