"""Proof of the bug zoo: each variant of a bug builds and fails the test that its file names, with the message that it names; without the bug the
test passes. All decoys are planted in all trees."""

import re
import time
from pathlib import Path

from kit.lab_file import LabError
from kit.zoo_file import BUDGET, Bug, Caught, applied, changed_lines
from kit.zoo_tree import Copy, judged

CAUGHT = "caught"


def prove(root: Path, directory: Path, bugs: list[Bug]) -> int:
    """Proves bugs one after the other in one build tree, and prints a line for each. Returns 0 if all are caught."""
    copy = Copy(root, directory)
    start = time.monotonic()
    bugs = [form for bug in bugs for form in bug.forms()]
    for bug in bugs:
        lines = sum(changed_lines(text, (root / file).read_text()) for file, text in applied(root, bug.edits).items())
        if lines > BUDGET:
            raise LabError(f"{bug.edits[0].where}: its fix changes {lines} lines, of which {BUDGET} are allowed")
    reasons = without_bug(copy, bugs)
    print(f"without a bug: built and tested in {time.monotonic() - start:.0f} s", flush=True)
    caught = 0
    for bug in bugs:
        begin = time.monotonic()
        result, said = (reasons[bug.name], "") if reasons[bug.name] else planted(copy, bug)
        caught += result == CAUGHT
        print(f"{bug.number:>3}.{bug.variant + 1} {bug.name:<30} {time.monotonic() - begin:>5.0f} s  {result}: {said[:120]}", flush=True)
    copy.plant(None)
    print(f"{caught} of {len(bugs)} variants are caught, in {time.monotonic() - start:.0f} s")
    return 0 if caught == len(bugs) else 1


def without_bug(copy: Copy, bugs: list[Bug]) -> dict[str, str]:
    """Builds the tree without a bug, and says for each bug why its tests do not pass there, or ""."""
    copy.plant(None)
    copy.build(bug.caught.target for bug in bugs)
    found: dict[tuple[Caught, str], str] = {}
    reasons = {}
    for bug in bugs:
        for tests in (bug.caught.filter, bug.also):
            if tests and (bug.caught, tests) not in found:
                found[bug.caught, tests] = not_passed(copy, bug.caught, tests)
        reasons[bug.name] = found[bug.caught, bug.caught.filter] or found.get((bug.caught, bug.also), "")
    return reasons


def not_passed(copy: Copy, caught: Caught, tests: str) -> str:
    status, message = judged(caught, tests, copy.test(caught, tests))
    return "" if status == "passed" else f"without the bug: {status}: {message.splitlines()[0] if message else ''}"


def planted(copy: Copy, bug: Bug) -> tuple[str, str]:
    """Builds the tree with a bug and runs its tests. Returns the result, and the line of the output that matches."""
    copy.plant(bug)
    try:
        copy.build([bug.caught.target])
    except LabError as error:
        return str(error), ""
    ended = copy.test(bug.caught, bug.caught.filter)
    (copy.directory / "build" / f"{bug.name}_{bug.variant + 1}.txt").write_text(ended.output)
    status, _ = judged(bug.caught, bug.caught.filter, ended)
    if status == "passed":
        return "the test passes", ""
    if status == "hung":
        return "the test hangs", ""
    said = next((line.strip() for line in ended.output.splitlines() if re.search(bug.says, line)), "")
    return (CAUGHT if said else f"the test fails, and its output does not match {bug.says}"), said
