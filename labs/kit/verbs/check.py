"""`lab check [--all]`"""

import argparse
import sys
from pathlib import Path

from kit import building, checks, starter
from kit.checks import Outcome
from kit.lab_file import Check, Lab


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", type=int, nargs="?", metavar="N", help="the number of the lab (in the source tree)")
    parser.add_argument("--all", action="store_true", help="go on after the first failure")
    parser.add_argument("--build", type=Path, metavar="DIR",
                        help="a build directory of this tree (default: build/release)")
    parser.add_argument("--seconds", type=float, default=checks.SECONDS, metavar="S",
                        help="the limit of one test program (default: %(default)g)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    lab = starter.lab_of(root, arguments.number)
    build = building.configure(root, arguments.build and arguments.build.resolve())
    built: dict[str, str] = {}
    points = passed = 0
    for check in lab.checks:
        outcome = _outcome(build, check, built, arguments.seconds)
        _print(check, outcome)
        points += check.points if outcome.passed else 0
        passed += outcome.passed
        if not outcome.passed and not arguments.all:
            break
    _summary(lab, points, passed)
    return 0 if passed == len(lab.checks) else 1


def _outcome(build: Path, check: Check, built: dict[str, str], seconds: float) -> Outcome:
    """Builds the check's program unless that has been tried, and runs it."""
    if check.target not in built:
        building.announce(build, [check.target])
        progress = building.ProgressLine(f"building {check.target}")
        built.update(building.build(build, [check.target], progress))
        progress.end()
    if built[check.target]:
        return Outcome("not_built", built[check.target], 0)
    with building.shown(f"running {check.target}, at most {seconds:g} s"):
        return checks.run_on_all(build, check, seconds=seconds)


def _print(check: Check, outcome: Outcome) -> None:
    earned = check.points if outcome.passed else 0
    print(f"{outcome.status.replace('_', ' '):<9} {earned:>2} of {check.points:<2}  {check}  ({outcome.seconds:.1f} s)")
    for line in outcome.message.splitlines():
        print(f"    {line}")
    if not outcome.passed:
        for line in checks.hints(check, outcome.message):
            print(f"    Hint: {line}")
    sys.stdout.flush()


def _summary(lab: Lab, points: int, passed: int) -> None:
    print(f"{passed} of {len(lab.checks)} checks pass: {points} of {sum(check.points for check in lab.checks)} points")
