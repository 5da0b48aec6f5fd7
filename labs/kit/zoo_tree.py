"""Copies of the tree with a bug in them: what is in one, how it is built, and how programs of it are run."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from kit import building, checks, commands, tree
from kit.lab_file import Check
from kit.starter import HIDDEN_TESTS, STUB
from kit.zoo_file import Bug, Caught, Edit, Recorded, applied, decoys


def given(path: str) -> bool:
    """Whether a copy has this file of the tree."""
    return not path.startswith("labs/") and (not path.startswith(HIDDEN_TESTS) or path.endswith("/CMakeLists.txt"))


def contents(root: Path, edits: list[Edit]) -> dict[str, bytes]:
    """The files of a copy, changed."""
    files = {}
    for path in filter(given, tree.files(root)):
        files[path] = STUB.encode() if path.startswith(HIDDEN_TESTS) else (root / path).read_bytes()
    for path, text in applied(root, edits).items():
        files[path] = text.encode()
    return files


def write(root: Path, target: Path, edits: list[Edit]) -> None:
    """Makes `target` a copy of the tree, changed. Files that are the same already keep their time, so that a build is short."""
    for path, data in contents(root, edits).items():
        copy = target / path
        if copy.is_file() and copy.read_bytes() == data:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        shutil.copymode(root / path, copy)


class Copy:
    """A copy of the tree and its build."""

    TEST_SECONDS = 300.0
    RUN_SECONDS = 600.0

    def __init__(self, root: Path, directory: Path):
        self.root, self.directory = root, directory
        self.build_directory = building.build_directory(directory)

    def plant(self, bug: Bug | None) -> None:
        """Writes the tree with the bug and with all decoys."""
        write(self.root, self.directory, [*(bug.edits if bug else []), *decoys(self.root)])

    def build(self, targets: Iterable[str]) -> None:
        """Raises LabError with the compiler's first error."""
        building.configure(self.directory)
        building.build_all(self.build_directory, list(dict.fromkeys(targets)))

    def test(self, caught: Caught, tests: str) -> commands.Ended:
        """Runs tests of a test program."""
        return commands.run(self.test_command(caught, tests), self.directory, checks.ENVIRONMENT, self.TEST_SECONDS)

    def test_command(self, caught: Caught, tests: str) -> list[str]:
        return [*checks.launcher(self.build_directory, caught.ranks), str(self.build_directory / "bin" / caught.target),
                f"--gtest_filter={tests}", "--gtest_color=no"]

    def run(self, recorded: Recorded, more: list[str]) -> commands.Ended:
        """Runs a command whose curve is recorded."""
        command = [*checks.launcher(self.build_directory, recorded.ranks), str(self.build_directory / "bin" / recorded.program),
                   *recorded.flags, *more]
        return commands.run(command, self.directory, {**checks.ENVIRONMENT, **recorded.environment}, self.RUN_SECONDS)


def judged(caught: Caught, tests: str, ended: commands.Ended) -> tuple[str, str]:
    """Status and message of tests that have ended, as of a check of a lab."""
    return checks.judge(Check(0, caught.target, [], tests, "", 0), ended)
