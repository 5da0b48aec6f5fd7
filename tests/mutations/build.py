"""Writes and builds the mutated copy of the sources. Drops mutants that do not compile."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from mutants import inserted

_FAILED = re.compile(r"^FAILED: ", re.MULTILINE)
_MARK = re.compile(r"\bmutant_(\d+)/")
_PLACE = re.compile(r"^(\S+?):(\d+):\d+: (?:error|note):", re.MULTILINE)


def snapshot(tree, directory):
    """Copies the files that git does not ignore, so that edits during a run do not affect the run."""
    listed = subprocess.run(["git", "-C", tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (tree / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, directory / name)


def _files(tree):
    return {str(path.relative_to(tree)) for path in Path(tree).rglob("*") if path.is_file()}


def _write_copy(original, copy, mutants):
    """Copies `original` to `copy` and inserts the mutants. Files that are already up to date keep their time stamps."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    names = _files(original)
    for name in names:
        content = (original / name).read_bytes()
        if name in by_file:
            content = inserted(content.decode(), by_file[name]).encode()
        target = copy / name
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(original / name, target)
    for name in _files(copy) - names:
        if not name.startswith("build/"):
            (copy / name).unlink()


def build(original, copy, mutants, arguments, say):
    """Builds `arguments.programs` (all if empty), and drops mutants until that succeeds. Returns those that are left."""
    _write_copy(original, copy, mutants)
    options = ["-DSTAGEGPT_NVCC=OFF", "-DSTAGEGPT_WERROR=OFF"]
    subprocess.run(["cmake", "--preset", arguments.preset, *options], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    targets = ["--target", *arguments.programs] if arguments.programs else []
    command = ["cmake", "--build", copy / "build" / arguments.preset, *targets, "--", "-k", "0", "-j", str(arguments.jobs)]
    while True:
        ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NINJA_STATUS": "", "LC_ALL": "C"})
        if ended.returncode == 0:
            return mutants
        # Each part of the output contains the messages of one compiler process.
        wrong = set().union(*(_at_fault(part, original, mutants) for part in _FAILED.split(ended.stdout)[1:]))
        if not wrong:
            (copy / "build" / "errors.txt").write_text(ended.stdout + ended.stderr)
            raise SystemExit(f"mutations: the copy does not build: {copy / 'build' / 'errors.txt'}")
        mutants = [mutant for mutant in mutants if mutant.id not in wrong]
        say(f"{len(wrong)} mutants do not compile; {len(mutants)} left")
        _write_copy(original, copy, mutants)


def _at_fault(errors, original, mutants):
    """The ids of the mutants named in lines with errors; if there are none, those named in any line; if there are none,
    that which is nearest to an error, such as a constant that the next line needs."""
    alive = {mutant.id for mutant in mutants}
    in_errors = "\n".join(line for line in errors.splitlines() if "error:" in line)
    for text in (in_errors, errors):
        named = {int(number) for number in _MARK.findall(text)} & alive
        if named:
            return named
    places = [(file, int(line)) for file, line in _PLACE.findall(errors)]
    distances = [(abs((original / file).read_text().count("\n", 0, mutant.start) + 1 - line), mutant.id)
                 for mutant in mutants for file, line in places if file == mutant.file]
    return {min(distances)[1]} if distances else set()
