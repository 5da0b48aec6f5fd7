"""`lab report`: the student's programs beside those of the reference, by compare_stages."""

import fcntl
import math
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from kit import building, tree
from kit.lab_file import Count, Lab, LabError, Trace

_STEPS = 20
_BATCH = 8  # compare_stages' own, and the sub-batches of --reproducible


def arguments(lab: Lab) -> list[str]:
    """The arguments of compare_stages that make it run what the lab is about: its stage, ranks and flags."""
    traces = [measure for measure in lab.measures if isinstance(measure, Trace)]
    named = sorted(set(_stages(lab)))
    choice = ["--stages", ",".join(named)] if named else []
    if traces and traces[0].ranks:
        choice += ["--ranks", str(traces[0].ranks)]
    flags = traces[0].flags if traces else []
    if traces:
        flags = _with_a_batch(flags, traces[0].ranks or 1)
    if set(named) <= {"0", "1"}:  # the emulator is slow
        flags = _with_more_steps(flags)
    return [*choice, "--", *flags] if flags else choice


def _with_a_batch(flags: list[str], ranks: int) -> list[str]:
    """A batch that the ranks divide, where that of compare_stages does not."""
    if "--batch-size" in flags or _BATCH % ranks == 0:
        return flags
    return [*flags, "--batch-size", str(math.lcm(_BATCH, ranks))]


def _with_more_steps(flags: list[str]) -> list[str]:
    """Traces have few steps, and compare_stages does not time the first three."""
    return [str(max(_STEPS, int(flag))) if before == "--steps" and flag.isdigit() else flag
            for before, flag in zip(["", *flags], flags)]


def programs(of_stages: list[str]) -> list[str]:
    """The targets that compare_stages runs."""
    return [f"stage{stage}_train" + ("_emulated" if stage in "23" else "") for stage in of_stages]


def _stages(lab: Lab) -> list[str]:
    for measure in lab.measures:
        program = " ".join(measure.command) if isinstance(measure, Count) else measure.program
        if match := re.match(r"stage(\d)", program):
            yield match.group(1)


def cache() -> Path:
    """Where references are kept: STAGEGPT_LABS_CACHE, or stagegpt-labs in the user's cache."""
    if given := os.environ.get("STAGEGPT_LABS_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stagegpt-labs"


def reference(source: Path, state: str, targets: list[str]) -> Path:
    """The build directory of the reference, in which the targets are built now if they have not been. `source` must be
    in that state, unless all are built."""
    directory = cache() / state / "build"
    if all((directory / "bin" / target).is_file() for target in targets):
        return directory
    if not (source / "CMakeLists.txt").is_file():
        raise LabError(f"the reference has not been built, and its source {source} is not there; --reference names a "
                       "build")
    if tree.state(source) != state:
        raise LabError(f"{source} has changed since this folder was made; --reference names a build of the reference")
    own = building.build_directory(source)
    if (own / "build.ninja").is_file() and building.steps(own, targets) == 0:
        return own
    with _locked(cache() / state):
        building.configure(source, directory, ["-DSTAGEGPT_TESTS=OFF"])
        _build(directory, targets, "building the reference")
    return directory


def stages(choice: list[str]) -> list[str]:
    """The stages that arguments of compare_stages name."""
    return choice[choice.index("--stages") + 1].split(",") if "--stages" in choice else []


def run(directory: Path, mark, output: Path, reference_build: Path | None, choice: list[str], flags: list[str]) -> int:
    """Builds both, and runs compare_stages with the arguments of the mark and those given. Returns its exit code."""
    if not stages(mark.report):
        raise LabError(f"lab {mark.lab} has nothing to compare")
    if output.exists():
        raise LabError(f"{output} exists already; --output names another folder")
    targets = programs(stages(mark.report))
    build = building.configure(directory)
    _build(build, ["compare_stages", *targets], "building")
    other = reference_build or reference(Path(mark.source), mark.state, targets)
    end = mark.report.index("--") if "--" in mark.report else len(mark.report)
    command = [str(build / "bin" / "compare_stages"), "--output", str(output), "--against", str(other / "bin"),
               "--title", f"Lab {mark.lab}", *(["--author", mark.student] if mark.student else []),
               *mark.report[:end], *choice, "--", *mark.report[end + 1:], *flags]
    return subprocess.run(command, check=False).returncode


def _build(directory: Path, targets: list[str], what: str) -> None:
    building.announce(directory, targets)
    building.build_all(directory, targets, what)


@contextmanager
def _locked(directory: Path):
    """One process at a time builds a reference."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("waiting for another process that builds the reference", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
