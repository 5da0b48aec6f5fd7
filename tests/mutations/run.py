#!/usr/bin/env python3
"""Runs the tests against random mutants of the code, and prints the kill rate and the mutants that no test kills.

    tests/mutations/run.py --seed 7 --count 100            # a random sample of all sources
    tests/mutations/run.py --seed 7 --count 100 --report   # the results so far
    tests/mutations/run.py --count 60 --of tools/doctor --programs doctor_tests   # of one folder, by its tests
    tests/mutations/run.py --list build/mutants/survivors.json --work build/again   # mutants that were drawn before

Results are kept in the --work directory: the same command continues after an interruption, and --fresh starts again. The exit
code is 1 if a mutant survives. Needs only the standard library.
"""

import argparse
import collections
import json
import shutil
import signal
import sys
import time
from pathlib import Path

import suite
from build import build, snapshot
from campaign import Lines, meet_all, record
from mutants import draw, find_again

ROOT = Path(__file__).resolve().parent.parent.parent


def say(text):
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--seed", type=int, default=1, help="of the random sample (default: %(default)s)")
    add("--count", type=int, default=100, help="size of the random sample (default: %(default)s)")
    add("--of", nargs="*", default=[""], metavar="PREFIX", help="draw from the files whose names begin so")
    add("--list", type=Path, help="run the mutants of this file, not a random sample")
    add("--draw", type=Path, metavar="FILE", help="write the random sample to this file and do nothing else")
    add("--tree", type=Path, default=ROOT, help="the sources (default: those around this script)")
    add("--work", type=Path, help="directory of all that is made (default: build/mutants of the tree)")
    add("--preset", default="release", help="how the mutated copy is built (default: %(default)s)")
    add("--jobs", type=int, default=2, help="mutants that run side by side (default: %(default)s)")
    add("--budget", type=float, default=150, help="seconds of tests that a mutant has to survive (default: %(default)s)")
    add("--longest", type=float, default=60, help="leave out tests that take longer, in seconds (default: %(default)s)")
    add("--leave-out", nargs="*", default=["slow", "gpu"], metavar="LABEL", help="leave out tests with these labels")
    add("--programs", nargs="*", default=[], help="test programs to build and run (default: all)")
    add("--fresh", action="store_true", help="forget results, not the build")
    add("--report", action="store_true", help="print the results so far and do nothing else")
    return parser.parse_args()


def sample(arguments, work):
    """The entries of this run's mutants."""
    original = work / "original"
    if not original.exists():
        shutil.rmtree(work / "copying", ignore_errors=True)
        snapshot(arguments.tree, work / "copying")
        (work / "copying").rename(original)
    entries = (json.loads(arguments.list.read_text()) if arguments.list
               else draw(original, arguments.seed, arguments.count, arguments.of))
    kept = work / "mutants.json"
    if kept.exists() and json.loads(kept.read_text()) != entries:
        raise SystemExit(f"mutations: {work} has results of other mutants: --fresh forgets them, --work names another directory")
    kept.write_text(json.dumps(entries, indent=1))
    return entries


def run(arguments, work, entries, results):
    """Finds, compiles and runs all mutants that have no result yet."""
    original, copy = work / "original", work / "source"
    mutants, done = [], {result["id"]: result["status"] for result in results.read()}
    for number, entry in enumerate(entries, 1):
        if done.get(number) in ("gone", "does not compile"):
            continue
        path = original / entry["file"]
        mutant = find_again(number, entry, path.read_text()) if path.is_file() else None
        if mutant:
            mutants.append(mutant)
        else:
            results.add({"id": number, "status": "gone"})
    say(f"{len(mutants)} mutants; building in {copy}")
    alive = build(original, copy, mutants, arguments, say)
    for mutant in mutants:
        if mutant not in alive:
            results.add({"id": mutant.id, "status": "does not compile"})
    tests = suite.discover(copy / "build" / arguments.preset, arguments.leave_out, arguments.programs)
    reached = record(tests, Lines(work / "tests.jsonl"), len(entries) + 1, arguments, say)
    meet_all([mutant for mutant in alive if mutant.id not in done], tests, reached, results, arguments, say)


def report(entries, results, work):
    """Prints the surviving mutants and the counts, and writes the survivors as a list. Returns their number."""
    counts, survivors = collections.Counter(drawn=len(entries)), []
    for result in sorted(results, key=lambda result: result["id"]):
        status, entry = result["status"], entries[result["id"] - 1]
        counts[status] += 1
        if status in ("survived", "out of time"):
            survivors.append(entry)
            print(f"{result['id']} {entry['file']}:{entry['line']}: {status}, reached by {result['reaching']} tests: "
                  f"{', '.join(result['reached_by'])}\n  - {entry['before']}\n  + {entry['after']}")
    kinds = ("drawn", "killed", "survived", "out of time", "does not compile", "gone")
    print(", ".join(f"{kind}: {counts[kind]}" for kind in kinds if counts[kind]))
    ran = counts["killed"] + len(survivors)
    print(f"kill rate: {100 * counts['killed'] / max(1, ran):.1f} % of the {ran} that were run")
    (work / "survivors.json").write_text(json.dumps(survivors, indent=1))
    return len(survivors)


def main():
    arguments = parse()
    # A shell starts background jobs with these signals ignored, and child processes inherit this. Some tests
    # send these signals to programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if arguments.draw:
        entries = draw(arguments.tree, arguments.seed, arguments.count, arguments.of)
        arguments.draw.write_text(json.dumps(entries, indent=1))
        return 0
    work = (arguments.work or arguments.tree / "build" / "mutants").resolve()
    work.mkdir(parents=True, exist_ok=True)
    if arguments.fresh:
        shutil.rmtree(work / "original", ignore_errors=True)
        for name in ("mutants.json", "tests.jsonl", "results.jsonl"):
            (work / name).unlink(missing_ok=True)
    entries, results = sample(arguments, work), Lines(work / "results.jsonl")
    if not arguments.report:
        run(arguments, work, entries, results)
    return 1 if report(entries, results.read(), work) else 0


if __name__ == "__main__":
    sys.exit(main())
