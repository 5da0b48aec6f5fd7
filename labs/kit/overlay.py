"""Builds programs of an existing build with some source files changed, without touching that build.

Only the objects that depend on a changed file are compiled, and only what contains them is linked, in another
directory: a starter is built in seconds. Ninja knows the commands and the dependencies.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kit.lab_file import LabError


def _ninja(build: Path, *arguments: str) -> str:
    return subprocess.run(["ninja", "-C", build, *arguments], capture_output=True, text=True, check=True).stdout


def dependencies(build: Path, endings: tuple[str, ...] = ("",)) -> Iterator[tuple[str, list[Path]]]:
    """Each object of a build, and what was compiled into it: files whose names have one of these endings."""
    resolved = functools.cache(lambda line: (build / line.strip()).resolve())  # many objects have the same headers
    for block in _ninja(build, "-t", "deps").split("\n\n"):
        target, *files = block.splitlines() or [""]
        yield target.partition(":")[0], [resolved(line) for line in files if line.endswith(endings)]


class Overlay:
    """`root` and `build` are the tree and its build directory, in which the targets have been built; `changed` is a
    tree with the same paths; `directory` gets the outputs, the programs in its bin/. The compiler gets `options` last."""

    def __init__(self, root: Path, build: Path, changed: Path, directory: Path, options: str = ""):
        self.root, self.build, self.changed, self.directory, self.options = root, build, changed, directory, options
        for path in (changed, directory):
            if re.search(r"\s", str(path)):
                raise LabError(f"{path}: variants cannot be built in a folder with white space in its name")
        self.clear([])

    def clear(self, files: list[str]) -> None:
        """Removes all outputs; from now on, `files` (paths in the tree) are what has changed."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        (self.directory / "CMakeCache.txt").symlink_to(self.build / "CMakeCache.txt")
        self.stale = self._objects_of(files) if files else set()
        self.made: dict[str, str] = {}  # the output of each command that ran; empty if it succeeded

    def make(self, targets: list[str]) -> list[str]:
        """Builds targets, as far as that has not been done. Returns the outputs of failed commands."""
        compiled, linked = [], []
        for command in _ninja(self.build, "-t", "commands", *targets).splitlines():
            output = self._output(command)
            if " -c " in command and output in self.stale:
                compiled.append((command, output))
            elif output and " -c " not in command and self.stale.intersection(command.split()):
                linked.append((command, output))
                self.stale.add(output)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            errors = list(pool.map(lambda one: self._once(one[1], self._compilation, *one), compiled))
        if not any(errors):
            errors += [self._once(output, self._link, command) for command, output in linked]
            self._link_others(targets)
        return [error for error in errors if error]

    def _once(self, output: str, rewritten: Callable[..., str], *arguments: str) -> str:
        if output not in self.made:
            self.made[output] = self._run(rewritten(*arguments))
        return self.made[output]

    def _link_others(self, targets: list[str]) -> None:
        """Programs without a changed object are those of the build."""
        for target in targets:
            program = self.directory / "bin" / target
            if not program.exists() and not program.is_symlink():
                program.parent.mkdir(exist_ok=True)
                program.symlink_to(self.build / "bin" / target)

    def _objects_of(self, files: list[str]) -> set[str]:
        """The objects that one of these files was compiled into."""
        paths = {self.root / file for file in files}
        return {target for target, sources in dependencies(self.build, tuple(files)) if paths.intersection(sources)}

    @staticmethod
    def _output(command: str) -> str:
        if match := re.search(r" -o (\S+)", command):
            return match.group(1)
        match = re.search(r" (?:qc|cr|rcs?) (\S+\.a) ", command)
        return match.group(1) if match else ""

    def _compilation(self, command: str, output: str) -> str:
        """The command with the sources of the changed tree and an output of its own."""
        place = self.directory / output
        place.parent.mkdir(parents=True, exist_ok=True)
        source = command.rpartition(" -c ")[2].strip()
        of_several = Path(source.strip('"'))
        if of_several.is_relative_to(self.build):  # a file that includes several sources
            moved = self.directory / of_several.relative_to(self.build)
            moved.parent.mkdir(parents=True, exist_ok=True)
            moved.write_text(self._in_changed_tree(of_several.read_text()))
            command = command.replace(source, str(moved))
        if self.options not in command:  # precompiled headers have the options of the build
            command = re.sub(r" -Winvalid-pch -include \S+", "", command)
        return f"{self._in_changed_tree(command).replace(output, str(place))} {self.options}"

    def _in_changed_tree(self, text: str) -> str:
        own_build = re.escape(str(self.build)[len(str(self.root)):])
        return re.sub(rf"{re.escape(str(self.root))}(?!{own_build})(?=[/\"\s\\])", str(self.changed), text)

    def _link(self, command: str) -> str:
        """The command with the objects and libraries that have been built anew."""
        (self.directory / self._output(command)).parent.mkdir(parents=True, exist_ok=True)
        return " ".join(str(self.directory / word) if word in self.stale else word for word in command.split(" "))

    def _run(self, command: str) -> str:
        ended = subprocess.run(command, shell=True, cwd=self.build, capture_output=True, text=True, check=False)
        return f"{command}\n{ended.stdout}{ended.stderr}" if ended.returncode else ""
