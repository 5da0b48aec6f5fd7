"""`lab zoo check DIR --work WORK`: a fix that was handed in, built and tested in a tree of ours, isolated as `lab grade` does.

Only the files with the fix are taken from DIR, as data: nothing in DIR is executed, its build least of all. WORK is used again for the
next fix, so that a check compiles what differs.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kit import building, checks, isolated, measures
from kit.build_tree import BUILD_SECONDS, BuildTree, Reference
from kit.isolated import Finished, Limits, Place
from kit.lab_file import LabError
from kit.zoo_file import Bug, Caught
from kit.zoo_tree import Copy

# A test program lists its tests when it runs, not when it is built: a build runs nothing of a student's.
_FLAGS = ["-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST"]


class IsolatedCopy(Copy):
    """A copy of the tree in WORK. What is built and tested in it sees neither the source tree nor DIR."""

    def __init__(self, root: Path, work: Path, directory: Path, limits: Limits = Limits()):
        self.tree = BuildTree(root, work.absolute(), [])
        super().__init__(root, self.tree.source)
        self.scratch = self.tree.work / "scratch"
        self.cover, self.limits = [root.resolve(), directory.resolve(), self.scratch], limits

    def __enter__(self) -> "IsolatedCopy":
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.lock.close()

    def put_fix(self, bug: Bug, files: dict[str, bytes]) -> None:
        """Builds our tree with the bug and all decoys; then puts the student's changed files, which have their own decoys, in
        place."""
        self.plant(bug)
        building.configure(self.directory, arguments=_FLAGS)
        building.build_all(self.build_directory, [bug.caught.target], f"building {bug.caught.target} with the bug")
        self.tree.put(files)

    def build(self, targets: Iterable[str]) -> None:
        self.tree.tests, self.tree.reference = list(targets), Reference("", {}, {}, {})
        place = Place(measures.fresh(self.scratch / "build"), own=[self.build_directory], cover=self.cover, show=[self.directory])
        finished = self.tree.build_all(place, replace(self.limits, seconds=BUILD_SECONDS))
        if not finished.ok:
            raise LabError(f"not built: {finished.message if finished.stopped else building.first_error(finished.output)}")

    def test(self, caught: Caught, tests: str) -> Finished:
        place = Place(measures.fresh(self.scratch / "test"), cover=self.cover, show=[self.directory])
        return isolated.run(self.test_command(caught, tests), place, replace(self.limits, seconds=self.TEST_SECONDS),
                            checks.ENVIRONMENT)
