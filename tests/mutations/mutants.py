"""Mutants: drawn at random from the sources, or found again from a list. Inserts them into a file beside the original code.

A function's body becomes `if (mutant 17) { mutated } else { original }` (switch.h). Line directives assign a mutant's code to a
file mutant_17/…, so that the compiler's errors name it.
"""

import random
import re
from collections import namedtuple
from os.path import commonprefix
from pathlib import Path

from edits import bodies, body_of, edits

FOLDERS = ("common", "tools", "stage0_serial", "stage1_mpi", "stage2_cuda", "stage3_mpi_cuda")
ENDINGS = (".cpp", ".h", ".cu", ".cuh")
# These files are compiled only with nvcc. Without nvcc, a mutant in them would seem to survive.
ONLY_FOR_GPUS = ("stage2_cuda/cuda/", "stage3_mpi_cuda/nccl_communicator.cpp")
_SWITCH = (Path(__file__).resolve().parent / "switch.h").read_text()

# In a file, the text from `start` to `end` becomes `text`. The id is the mutant's number in its list.
Mutant = namedtuple("Mutant", "id file start end text")


def draw(tree, seed, count, prefixes=("",)):
    """Draws `count` different mutants, as entries of a list, from the files whose names begin with one of `prefixes`.

    Each draw selects a line at random, then one of its mutants. The same seed and sources give the same sequence of
    mutants; a larger `count` makes it longer.
    """
    lines, sources = {}, {}
    names = sorted(str(path.relative_to(tree)) for folder in FOLDERS for path in (Path(tree) / folder).rglob("*"))
    for file in names:
        if not file.endswith(ENDINGS) or file.startswith(ONLY_FOR_GPUS) or not file.startswith(tuple(prefixes)):
            continue
        source = sources[file] = (Path(tree) / file).read_text()
        places = bodies(source)
        for edit in edits(source):
            if body_of(places, edit.start, edit.end):
                lines.setdefault((file, source.count("\n", 0, edit.start)), []).append(edit)
    if count > sum(map(len, lines.values())):
        raise SystemExit(f"mutations: --count {count}: there are fewer mutants")
    generator, drawn, keys = random.Random(seed), {}, list(lines)
    while len(drawn) < count:
        file, line = generator.choice(keys)
        edit = generator.choice(lines[file, line])
        drawn[file, edit] = None
    return [_entry(file, edit, sources[file]) for file, edit in drawn]


def _entry(file, edit, source):
    """A mutant as data: its whole lines before and after the change, and the lines near it."""
    first = source.rfind("\n", 0, edit.start) + 1
    first += len(source[first:]) - len(source[first:].lstrip())
    last = source.find("\n", edit.end)
    before, after = source[first:edit.start], source[edit.end:len(source) if last < 0 else last]
    return {"file": file, "line": source.count("\n", 0, first) + 1, "before": before + source[edit.start:edit.end] + after,
            "after": before + edit.text + after, "near": _near(source, first)}


def _near(source, at):
    """The lines within 8 lines of an offset."""
    line = source.count("\n", 0, at)
    lines = source.split("\n")[max(0, line - 8):line + 9]
    return [text.strip() for text in lines if text.strip()]


def find_again(number, entry, source):
    """The mutant of an entry in another version of its file, or None if its line is gone or in no function.

    Of several places with the same text, takes that with most of the lines near it, at least a third.
    """
    same_lines = re.finditer(r"^[ \t]*(" + re.escape(entry["before"]) + r")$", source, re.MULTILINE)
    near, found = set(entry["near"]), []
    for start in (match.start(1) for match in same_lines):
        common = len(near & set(_near(source, start)))
        found.append((common, -abs(source.count("\n", 0, start) + 1 - entry["line"]), start))
    if not found or 3 * max(found)[0] < len(near):
        return None
    start, before, after = max(found)[2], entry["before"], entry["after"]
    same = len(commonprefix([before, after]))
    behind = len(commonprefix([before[same:][::-1], after[same:][::-1]]))
    mutant = Mutant(number, entry["file"], start + same, start + len(before) - behind, after[same:len(after) - behind])
    return mutant if body_of(bodies(source), mutant.start, mutant.end) else None


def inserted(source, mutants):
    """`source` with all `mutants` of that file inserted. Each must be in a function."""
    file, groups, places = mutants[0].file, {}, bodies(source)
    for mutant in mutants:
        groups.setdefault(body_of(places, mutant.start, mutant.end), []).append(mutant)

    def line(at, prefix=""):
        return f'\n#line {source.count(chr(10), 0, at) + 1} "{prefix}{file}"\n'

    # Changes are made from the end of the file, so that the offsets of earlier bodies remain valid.
    result = source
    for (start, end), group in sorted(groups.items(), reverse=True):
        mutated = "".join(f"if (STAGEGPT_MUTANT({mutant.id})) {{{line(start, f'mutant_{mutant.id}/')}"
                          f"{source[start:mutant.start]}{mutant.text}{source[mutant.end:end]}}} else " for mutant in group)
        result = f"{result[:start]}{mutated}{{{line(start)}{source[start:end]}}}{line(end)}{result[end:]}"
    return f'#line 1 "switch.h"\n{_SWITCH}#line 1 "{file}"\n{result}'
