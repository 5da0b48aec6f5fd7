#!/usr/bin/env python3
"""The loops of stage 0's kernels that are marked `#pragma omp simd` are vectorised.

    vectorised_test.py BUILD_DIRECTORY

A loop with a call that is not inlined takes one element at a time and computes the same numbers in ten times the time,
which no other test would notice. Compiles the kernels again, with the flags of the build and GCC's report of what it
vectorises. A loop in a template has several instances. Some contain calls, such as that of erfc() in the exact GELU, but at
least two of three must be vectorised.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "stage0_serial" / "kernels"
# They contain all marked loops, most of them in the headers that they include.
SOURCES = ("/cpu_backend.cpp", "/matmul_packed.cpp", "/attention_blocked.cpp")
REPORT = re.compile(
    r"^(\S+?):(\d+):\d+: (?:optimized: loop vectorized using (\d+) byte vectors|(missed: couldn't vectorize loop))", re.M)


def marked_loops():
    """The file and the lines of each marked loop, from the mark on: GCC names one of them."""
    most = 5
    for path in sorted(KERNELS.iterdir()):
        lines = path.read_text().splitlines()
        marks = [i + 1 for i, line in enumerate(lines) if line.strip().startswith("#pragma omp simd")]
        for mark, following in zip(marks, [*marks[1:], len(lines) + 1]):
            yield path, range(mark, min(mark + most, following))


def commands_of(build):
    """Those that compile these sources, each alone or all together."""
    for command in json.loads((build / "compile_commands.json").read_text()):
        of_library = "/stage0_cpu.dir/" in command["command"]
        if of_library and (command["file"].endswith(SOURCES) or "/Unity/" in command["file"]):
            yield command


def report(command, scratch):
    """GCC's report for a source file."""
    words = shlex.split(command["command"])
    words = words[next(i for i, word in enumerate(words) if re.search(r"\+\+(-\d+)?$", word)):]  # without ccache
    words[words.index("-o") + 1] = str(Path(scratch) / "object.o")
    words += ["-O3", "-fopt-info-vec-optimized", "-fopt-info-vec-missed"]
    result = subprocess.run(words, cwd=command["directory"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command['file']}: {result.stderr}")
    return result.stderr


def main():
    build = Path(sys.argv[1]).resolve()
    widths, missed = defaultdict(list), defaultdict(int)  # by place: vectors' bytes, and instances without vectors
    with tempfile.TemporaryDirectory() as scratch:
        for command in commands_of(build):
            for path, line, width, miss in REPORT.findall(report(command, scratch)):
                place = Path(command["directory"], path).resolve(), int(line)
                if miss:
                    missed[place] += 1
                else:
                    widths[place].append(int(width))
    failed = loops = 0
    for path, lines in marked_loops():
        loops += 1
        found = [width for line in lines for width in widths[path, line]]
        vectorised = found.count(max(found, default=0))  # narrower ones are the rests of such loops
        scalar = sum(missed[path, line] for line in lines)
        if vectorised == 0 or vectorised < 2 * scalar:
            failed += 1
            print(f"{path.relative_to(ROOT)}:{lines[0]}: {scalar} of {vectorised + scalar} instances are not vectorised")
    print(f"{loops - failed} of {loops} marked loops are vectorised")
    return 1 if failed or not loops else 0


if __name__ == "__main__":
    sys.exit(main())
