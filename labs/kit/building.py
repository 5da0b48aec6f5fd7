"""Configures a tree and builds targets of it, with progress, and finds the first compiler error."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kit.lab_file import LabError

PRESET = "release"
_FEW_STEPS, _STEP_SECONDS = 5, 8  # of processor time, an estimate for the programs of labs 4 and 5


def build_directory(tree: Path) -> Path:
    return tree / "build" / PRESET


def configure(tree: Path, build: Path | None = None, arguments: list[str] = ()) -> Path:
    """Configures a tree if that has not been done. Returns the build directory. LabError has CMake's message."""
    build = build or build_directory(tree)
    if (build / "build.ninja").is_file():
        return build
    command = ["cmake", "--preset", PRESET, "-S", str(tree), "-B", str(build), *arguments]
    ended = _run(command, tree)
    if ended.returncode != 0:
        error = re.search(r"^CMake Error.*?(?=\n\S|\Z)", ended.stdout, re.MULTILINE | re.DOTALL)
        text = " ".join((error.group() if error else ended.stdout[-500:]).split())
        raise LabError(f"cmake could not configure {tree}: {text} (./scripts/doctor.sh says what this machine lacks)")
    return build


def build(directory: Path, targets: list[str], progress: Callable[[str], None] = lambda line: None) -> dict[str, str]:
    """Builds targets of a build directory. Returns for each its first error, empty if it was built."""
    output = _ninja(directory, targets, progress)
    if output is None:
        return {target: "" for target in targets}
    if unknown := re.search(r"^ninja: error: unknown target '(.*?)'", output, re.MULTILINE):
        raise LabError(f"the build has no target {unknown.group(1)}")
    if len(targets) == 1:
        return {targets[0]: first_error(output)}
    return {target: error for one in targets for target, error in build(directory, [one]).items()}


def build_all(directory: Path, targets: list[str], what: str = "") -> None:
    """Builds targets, and shows the progress after `what`. LabError has the first error of one that does not build."""
    progress = ProgressLine(what)
    errors = build(directory, targets, progress if what else lambda line: None)
    progress.end()
    for target, error in errors.items():
        if error:
            raise LabError(f"{target} does not build: {error}")


def steps(directory: Path, targets: list[str]) -> int:
    """How many commands a build of targets would run; 0 if all is built."""
    ended = _run(["ninja", "-C", str(directory), "-n", *targets], directory)
    if unknown := re.search(r"unknown target '(.*?)'", ended.stdout + (ended.stderr or "")):
        raise LabError(f"the build has no target {unknown.group(1)}")
    found = re.findall(r"^\[\d+/(\d+)\]", ended.stdout, re.MULTILINE)
    return int(found[-1]) if found else 0


def announce(directory: Path, targets: list[str], out=None) -> None:
    """Says what is about to be built, and how long it takes, unless it is little."""
    if (number := steps(directory, targets)) > _FEW_STEPS:
        processors = len(os.sched_getaffinity(0))
        minutes = max(1, round(number * _STEP_SECONDS / 60 / processors))
        print(f"{' '.join(targets)}: {number} steps to build, about {minutes} minute{'s' * (minutes > 1)} on {processors} "
              f"processor{'s' * (processors > 1)}", file=out or sys.stderr, flush=True)


@cache
def cached(directory: Path, variable: str) -> str:
    """A variable of CMakeCache.txt; empty if it is not set."""
    match = re.search(rf"^{variable}:\w+=(.*)$", (directory / "CMakeCache.txt").read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def first_error(output: str) -> str:
    """The first error of a compiler or linker: `file:line:column: error: ...`; without one, the output's last lines."""
    patterns = (r"^\S.*?:\d+(?::\d+)?: (?:fatal )?error: .*$", r"^\S+\(\d+\): error.*$",
                r"^.*undefined reference to.*$", r"^.*multiple definition of.*$",
                r"^CMake Error.*$", r"^ninja: error: .*$")
    found = [match for pattern in patterns if (match := re.search(pattern, output, re.MULTILINE))]
    if found:
        return min(found, key=lambda match: match.start()).group().strip()
    return "\n".join(output.strip().splitlines()[-5:]) or "the build failed without a message"


def blamed(output: str, files: Iterable[str]) -> dict[str, str]:
    """Those of the files that do not compile, each with its first error. A failed command is blamed on the last of the files
    that its compiler names until its first error: so a wrong header is, not what includes it."""
    found: dict[str, str] = {}
    place = "|".join(rf"{re.escape(name)}(?=[:(]\d)" for name in files)
    for failed in output.split("\nFAILED: ")[1:]:
        error = first_error(failed).splitlines()[0]
        if named := re.findall(place, failed.partition(error)[0] + error):
            found.setdefault(named[-1], error)
    return found


class ProgressLine:
    """Prints a build's progress: on a terminal in one line that is rewritten, elsewhere a line for every tenth."""

    def __init__(self, what: str, out=None):
        self.what, self.out, self.tenth, self.shown = what, out or sys.stderr, 0, False

    def __call__(self, line: str) -> None:
        match = re.match(r"\[(\d+)/(\d+)\]", line)
        if not match:
            return
        done, all_ = map(int, match.groups())
        if self.out.isatty():
            self.out.write(f"\r\033[K{self.what}: {done} of {all_}")
            self.out.flush()
            self.shown = True
        elif 10 * done // all_ > self.tenth:
            self.tenth = 10 * done // all_
            self.out.write(f"{self.what}: {done} of {all_}\n")
            self.out.flush()

    def end(self) -> None:
        if self.shown:
            self.out.write("\r\033[K")
            self.out.flush()


@contextmanager
def shown(text: str, out=sys.stderr):
    """On a terminal, shows a line while something lasts."""
    if not out.isatty():
        yield
        return
    print(text, end="", file=out, flush=True)
    try:
        yield
    finally:
        print("\r\033[K", end="", file=out, flush=True)


def _ninja(directory: Path, targets: list[str], progress: Callable[[str], None]) -> str | None:
    """Builds as much as possible. Returns the output, or None if all was built."""
    command = [cached(directory, "CMAKE_MAKE_PROGRAM") or "ninja", "-C", str(directory), "-k", "0", *targets]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          text=True, errors="replace", env=_environment()) as process:
        try:
            for line in process.stdout:
                lines.append(line)
                progress(line)
        except BaseException:
            process.terminate()
            raise
    return None if process.returncode == 0 else "".join(lines)


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, env=_environment(), check=False)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not installed; ./scripts/setup.sh installs it") from error


def _environment() -> dict[str, str]:
    """Messages of compilers in English, without colours."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "GCC_COLORS": "", "CLICOLOR_FORCE": "0", "NINJA_STATUS": "[%f/%t] "}
