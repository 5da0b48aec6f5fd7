"""Chooses mutants: the mutants of listed/, or a random sample of all mutants that mutators.py can make."""

import json
import random
import shutil
import subprocess
from pathlib import Path

from cpp_source import regions
from mutators import edits
from rewrite import Mutant, region_of

FOLDERS = ("common", "tools", "stage0_serial", "stage1_mpi", "stage2_cuda", "stage3_mpi_cuda")
ENDINGS = (".cpp", ".h", ".cu", ".cuh")
# These files are compiled only with nvcc. Without nvcc, a mutant in them would seem to survive.
ONLY_FOR_GPUS = ("stage2_cuda/cuda/", "stage3_mpi_cuda/nccl_communicator.cpp")


def tracked_files(root):
    """Files of the working tree that git does not ignore, relative to `root`."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (Path(root) / name).is_file())


def snapshot(root, directory):
    """Copies the working tree, so that edits during a run do not affect the run."""
    for name in tracked_files(root):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(root) / name, directory / name)


def files_of(tree):
    """Files of a snapshot, relative to it."""
    return sorted(str(path.relative_to(tree)) for path in Path(tree).rglob("*") if path.is_file())


def mutable_files(names):
    return [name for name in names if name.startswith(FOLDERS) and name.endswith(ENDINGS)
            and not name.startswith(ONLY_FOR_GPUS)]


def random_mutants(tree, seed, count, prefixes=("",)):
    """Draws `count` different mutants from the files whose names begin with one of `prefixes`.

    Each draw selects a line at random, then one of its mutants. All lines have the same probability, and so have all
    mutants of a line. The same seed and sources give the same sequence of mutants; a larger `count` makes it longer.
    """
    lines = {}
    for file in [name for name in mutable_files(files_of(tree)) if name.startswith(prefixes)]:
        source = (Path(tree) / file).read_text()
        places = regions(source)
        for edit in edits(source):
            if region_of(places, edit.start, edit.end):
                lines.setdefault((file, source.count("\n", 0, edit.start)), []).append(edit)
    generator = random.Random(seed)
    drawn, keys = {}, list(lines)
    if count > sum(map(len, lines.values())):
        raise SystemExit(f"mutations: --count {count}: there are fewer mutants")
    while len(drawn) < count:
        file, line = generator.choice(keys)
        edit = generator.choice(lines[file, line])
        drawn.setdefault((file, edit), Mutant(len(drawn) + 1, edit.kind, file, edit.start, edit.end, edit.text))
    return list(drawn.values())


def listed_mutants(tree, path):
    """The mutants of a list, or of all lists in a directory. If some do not apply, exits and prints the reasons."""
    lists = sorted(path.glob("*.json")) if path.is_dir() else [path]
    files, mutants, wrong = {}, [], []
    for entry in [entry for file in lists for entry in json.loads(file.read_text())]:
        file, find = entry["file"], entry["find"]
        if file not in files:
            source = (Path(tree) / file).read_text() if (Path(tree) / file).is_file() else ""
            files[file] = source, regions(source)
        source, places = files[file]
        start = source.find(find)
        if source.count(find) != 1:
            wrong.append(f"{file}: '{find}': there {source.count(find)} times, expected once")
        elif not region_of(places, start, start + len(find)):
            wrong.append(f"{file}: '{find}': outside of functions and initial values")
        else:
            mutants.append(Mutant(len(mutants) + 1, entry["what"], file, start, start + len(find), entry["replace"],
                                  entry["tests"]))
    if wrong:
        raise SystemExit("\n".join(f"mutations: {reason}" for reason in wrong))
    return mutants


def equivalents(path):
    """The equivalent mutants of equivalent.json: {(file, lines, mutated lines): reason}, with white space normalised."""
    entries = json.loads(Path(path).read_text())
    return {(entry["file"], plain(entry["find"]), plain(entry["replace"])): entry["reason"] for entry in entries}


def plain(text):
    return " ".join(text.split())
