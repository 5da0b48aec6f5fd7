#!/usr/bin/env python3
"""Runs the tests against mutants of the code, and prints the mutants that no test kills.

    tests/mutations/run.py                              # the mutants of listed/
    tests/mutations/run.py --seed 7 --count 100         # a random sample of all sources
    tests/mutations/run.py --seed 7 --count 100 --report  # the results so far
    tests/mutations/run.py --seed 7 --count 60 --of tools/doctor --programs doctor_tests   # of one folder, by its tests

All mutants are compiled together, in a copy of the sources, and selected by an environment variable. Each test runs once
without a mutant, to record which mutants it reaches. Then each mutant runs with the tests that reach it, until one
fails. Results are kept in the --work directory: the same command continues after an interruption, and --fresh starts
again. The exit code is 1 if a mutant survives and is not in equivalent.json. Needs only the standard library.
"""

import argparse
import json
import shutil
import signal
import sys
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import build
import suite
from campaign import Campaign, record
from choose import equivalents, listed_mutants, random_mutants, snapshot
from report import report
from rewrite import Mutant

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def say(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of a random sample (default: %(default)s)")
    parser.add_argument("--count", type=int, help="size of a random sample (default: listed mutants instead)")
    parser.add_argument("--of", nargs="*", default=[""], metavar="PREFIX", help="draw a sample of the files that begin so")
    parser.add_argument("--list", type=Path, default=HERE / "listed", help="mutants as data: a file or a directory")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants", help="directory of all that is made")
    parser.add_argument("--copy", type=Path, help="the mutated copy, with its build (default: source in --work)")
    parser.add_argument("--preset", default="release", help="how it is built (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that run side by side (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=300,
                        help="seconds of tests that a mutant has to survive (default: %(default)s)")
    parser.add_argument("--longest", type=float, default=60, help="leaves out tests that take longer, in seconds")
    parser.add_argument("--leave-out", nargs="*", default=["slow", "gpu"], metavar="LABEL", help="labels of tests")
    parser.add_argument("--programs", nargs="*", default=[], help="test programs to build and run (default: all)")
    parser.add_argument("--fresh", action="store_true", help="forget results, not the build")
    parser.add_argument("--report", action="store_true", help="print the results so far and do nothing else")
    return parser.parse_args()


def sample(arguments, directory, original):
    """The mutants of this run, drawn once, and the ids of those that compile as far as is known."""
    kept = directory / "sample.json"
    if not kept.exists():
        snapshot(ROOT, original)
        mutants = (random_mutants(original, arguments.seed, arguments.count, tuple(arguments.of)) if arguments.count
                   else listed_mutants(original, arguments.list))
        save_sample(kept, mutants, mutants)
    entries = json.loads(kept.read_text())
    return [Mutant(**entry["mutant"]) for entry in entries], {e["mutant"]["id"] for e in entries if e["compiles"]}


def save_sample(kept, mutants, compiling):
    ids = {mutant.id for mutant in compiling}
    entries = [{"mutant": asdict(mutant), "compiles": mutant.id in ids} for mutant in mutants]
    kept.write_text(json.dumps(entries, indent=1))


def main():
    arguments = parse()
    # A shell starts background jobs with these signals ignored, and child processes inherit this. Some tests
    # send these signals to programs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    name = arguments.list.stem
    if arguments.count:
        name = f"seed_{arguments.seed}_count_{arguments.count}"
        if arguments.of != [""]:  # a hash, so that the name is short for any number of prefixes
            name += f"_of_{zlib.crc32(' '.join(arguments.of).encode()):08x}"
    work = arguments.work.resolve()
    directory = work / name
    if arguments.fresh and directory.exists():
        shutil.rmtree(directory)
    original = directory / "original"
    original.mkdir(parents=True, exist_ok=True)
    mutants, compiling = sample(arguments, directory, original)
    results = directory / "results.jsonl"
    if not arguments.report:
        copy = (arguments.copy or work / "source").resolve()
        say(f"{len(mutants)} mutants; building in {copy}")
        alive = [mutant for mutant in mutants if mutant.id in compiling]
        build.write_copy(original, copy, alive)
        built = build.configure(copy, arguments.preset)
        alive = build.build_all(original, copy, built, alive, arguments.programs, arguments.jobs, say)
        save_sample(directory / "sample.json", mutants, alive)
        tests = suite.discover(built, arguments.leave_out, arguments.programs)
        reached = record(tests, directory / "reached.json", mutants, arguments, say)
        Campaign(alive, tests, reached, results, arguments.budget, say).run(arguments.jobs)
        compiling = {mutant.id for mutant in alive}
    unexplained = report(original, mutants, compiling, results, directory, equivalents(HERE / "equivalent.json"))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
