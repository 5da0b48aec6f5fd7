"""Finds which tests reach a mutant, and which of them kill it."""

import collections
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import suite

_FIRST_BATCH, _LONGEST_BATCH = 0.5, 10.0  # seconds of tests in one process


class Lines:
    """A file with a line of JSON for each result, to which threads append."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def read(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def add(self, result):
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def _side_by_side(function, items, arguments, say):
    """Calls a function with each item, and says how far that is."""
    began, done = time.monotonic(), 0

    def one(item):
        nonlocal done
        text = function(item)
        done += 1
        left = (time.monotonic() - began) / done * (len(items) - done)
        if text or done % 100 == 0:
            say(f"{done} of {len(items)}, {left / 60:.0f} min left: {text or ''}")

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(one, items))


def record(tests, kept, size, arguments, say):
    """Runs each test once without a mutant, and sets its time. Returns the ids of the mutants that each test reaches.

    Removes tests from `tests` if they fail or take longer than `arguments.longest`.
    """
    done = {result["test"] for result in kept.read()}
    left = [test for test in tests if test.name not in done]
    say(f"{len(left)} tests to run without a mutant")
    _side_by_side(lambda test: kept.add(suite.reached(test, size, arguments.longest)), left, arguments, say)
    records = {result["test"]: result for result in kept.read()}
    for test in list(tests):
        how, test.seconds = records[test.name]["how"], records[test.name]["seconds"]
        if how != "passed" or test.seconds > arguments.longest:
            say(f"left out: {test.name}: {how}, {test.seconds:.1f} s")
            tests.remove(test)
    return {test.name: set(records[test.name]["reaches"]) for test in tests}


def meet_all(mutants, tests, reached, results, arguments, say):
    """Runs each mutant with the tests that reach it, until one fails."""
    kills = collections.Counter()  # number of mutants that a test has killed, in each file and in all files

    def order(mutant):
        """Short tests and tests that have killed many mutants come first."""
        return sorted((test for test in tests if mutant.id in reached[test.name]),
                      key=lambda test: test.seconds / (1 + 10 * kills[mutant.file, test.name] + kills[test.name]))

    def one(mutant):
        result = {"id": mutant.id, **_meet(mutant, order(mutant), arguments.budget)}
        if "test" in result:
            kills.update([result["test"], (mutant.file, result["test"])])
        results.add(result)
        return f"{mutant.id} {mutant.file} {result['status']} {result.get('test', '')}"

    say(f"{len(mutants)} mutants to run")
    _side_by_side(one, mutants, arguments, say)


def _meet(mutant, tests, budget):
    """Runs tests until one fails, and fails again when it runs alone."""
    result = {"status": "survived", "reaching": len(tests), "reached_by": [test.name for test in tests[:3]], "seconds": 0.0}
    environment, limit = {"STAGEGPT_MUTANT": str(mutant.id)}, _FIRST_BATCH
    while tests:
        if result["seconds"] > budget:
            return {**result, "status": "out of time"}
        batch = suite.next_batch(tests, limit)
        outcome = suite.run(batch, environment)
        result["seconds"] += outcome.seconds
        if outcome.how != "passed":
            batch = [suite.culprit(batch, outcome)]  # if it passes alone, the others are run again
            outcome = suite.run(batch, environment)
            result["seconds"] += outcome.seconds
            if outcome.how != "passed":
                return {**result, "status": "killed", "test": batch[0].name, "how": outcome.how}
        ran = {test.name for test in batch}
        tests = [test for test in tests if test.name not in ran]
        limit = min(2 * limit, _LONGEST_BATCH)
    return result
