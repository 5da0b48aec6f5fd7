"""Writes and builds the mutated copy of the sources. Drops mutants that do not compile."""

import os
import re
import shutil
import subprocess

from choose import files_of
from rewrite import mentioned, rewritten

_FAILED = re.compile(r"^FAILED: ", re.MULTILINE)
_LONGEST_CLASS = 12  # lines
_PLACE = re.compile(r"^(\S+?):(\d+):\d+: (?:error|note):", re.MULTILINE)


def write_copy(original, copy, mutants):
    """Copies `original` to `copy` and inserts the mutants. Files that are already up to date keep their time stamps."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    names = files_of(original)
    for name in names:
        content = (original / name).read_bytes()
        if name in by_file:
            content = rewritten(content.decode(), by_file[name]).encode()
        target = copy / name
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(original / name, target)
    for name in set(files_of(copy)) - set(names):
        if not name.startswith("build/"):
            (copy / name).unlink()


def configure(copy, preset):
    """Returns the directory of the build."""
    options = ["-DSTAGEGPT_NVCC=OFF", "-DSTAGEGPT_WERROR=OFF", "-DSTAGEGPT_MUTANTS=ON",
               "-DCMAKE_UNITY_BUILD=OFF"]  # each error then concerns the mutants of one file
    subprocess.run(["cmake", "--preset", preset, *options], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return copy / "build" / preset


def build_all(original, copy, build, mutants, programs, jobs, say):
    """Builds `programs` (all if empty), and drops mutants until the build succeeds. Returns those that are left."""
    targets = ["--target", *programs] if programs else []
    command = ["cmake", "--build", build, *targets, "--", "-k", "0", "-j", str(jobs)]
    environment = {**os.environ, "NINJA_STATUS": "", "LC_ALL": "C"}
    while True:
        write_copy(original, copy, mutants)
        ended = subprocess.run(command, capture_output=True, text=True, env=environment)
        if ended.returncode == 0:
            return mutants
        # Each part of the output contains the messages of one compiler process.
        wrong = set().union(*(mentioned(part) for part in _FAILED.split(ended.stdout + ended.stderr)[1:]))
        wrong = wrong & {mutant.id for mutant in mutants} or beside(original, ended.stdout, mutants) \
            or beside(original, ended.stdout, mutants, _LONGEST_CLASS)
        if not wrong:
            (build / "errors.txt").write_text(ended.stdout + ended.stderr)
            raise SystemExit(f"mutations: the copy does not build: {build / 'errors.txt'}")
        mutants = [mutant for mutant in mutants if mutant.id not in wrong]
        say(f"{len(wrong)} mutants do not compile; {len(mutants)} left")


def beside(original, errors, mutants, lines=0):
    """The ids of the mutants near the compiler's errors: from one line before an error to `lines` lines after it.

    The line before may hold a mutated constant that the reported line needs. The lines after may hold a member of a
    class whose first line is reported.
    """
    places = {(file, int(line)) for file, line in _PLACE.findall(errors)}
    found = set()
    for mutant in mutants:
        line = (original / mutant.file).read_text().count("\n", 0, mutant.start) + 1
        if places & {(mutant.file, line - after) for after in range(-1, lines + 1)}:
            found.add(mutant.id)
    return found
