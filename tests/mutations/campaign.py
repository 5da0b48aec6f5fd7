"""Finds which tests reach a mutant, and which of them kill it."""

import collections
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import suite

_START = 0.05  # seconds that a process takes to start
_FIRST_BATCH = 0.5  # seconds of tests in the first process of a mutant; later processes get more tests


def record(tests, kept, mutants, arguments, say):
    """Runs each test without a mutant, with `arguments.jobs` programs in parallel, and sets its time.

    Removes tests from `tests` if they fail or take longer than `arguments.longest`. Returns the ids of the mutants
    that each test reaches, and saves them in the file `kept`.
    """
    done = json.loads(kept.read_text()) if kept.exists() else {}
    size = max(mutant.id for mutant in mutants) + 1
    left = [test for test in tests if test.name not in done]
    lock = threading.Lock()

    def one(group):
        found = suite.reached(group, size, arguments.longest)
        with lock:
            done.update(found)
            kept.write_text(json.dumps(done))
            say(f"{len(done)} of {len(tests)} tests have run without a mutant")

    for alone in (False, True):  # second round: a test without a record runs in a process of its own
        groups = collections.defaultdict(list)
        for test in left:
            if test.name not in done:
                groups[test.name if alone or not test.gtest else test.command[0]].append(test)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, groups.values()))
    for test in list(tests):
        test.seconds = done[test.name]["seconds"]
        if not done[test.name]["passed"] or test.seconds > arguments.longest:
            say(f"left out: {test.name}: {'passes' if done[test.name]['passed'] else 'fails'}, {test.seconds:.1f} s")
            tests.remove(test)
    return {test.name: set(done[test.name]["reaches"]) for test in tests}


class Campaign:
    """Runs all mutants that have no result yet. Appends each result to a file, as one line of JSON."""

    def __init__(self, mutants, tests, reached, results, budget, say):
        self.mutants, self.tests, self.reached = mutants, tests, reached
        self.results, self.budget, self.say = results, budget, say
        self.kills = collections.Counter()  # number of mutants that a test has killed, in each file and in all files
        self.lock = threading.Lock()
        self.count = 0

    def run(self, jobs):
        done = set()
        if self.results.exists():
            done = {json.loads(line)["id"] for line in self.results.read_text().splitlines()}
        left = [mutant for mutant in self.mutants if mutant.id not in done]
        began = time.monotonic()
        self.say(f"{len(left)} mutants to run")

        def one(mutant):
            result = {"id": mutant.id, **self.meet(mutant)}
            with self.lock:
                with open(self.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
                self.count += 1
                rest = (time.monotonic() - began) / self.count * (len(left) - self.count)
                self.say(f"{self.count} of {len(left)}, {rest / 60:.0f} min left: {mutant.id} {mutant.file} "
                         f"{result['status']} {result.get('test', '')}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, left))

    def order(self, mutant):
        """The tests that reach a mutant, in the order to run them: first the tests that are expected to fail, then the others,
    with short tests and tests that have killed many mutants first."""
        reaching = [test for test in self.tests if mutant.id in self.reached[test.name]]
        expected = suite.named(reaching, mutant.tests)
        others = sorted((test for test in reaching if test not in expected), key=lambda test: (
            (test.seconds + _START) / (1 + 10 * self.kills[mutant.file, test.name] + self.kills[test.name])))
        return expected + others

    def meet(self, mutant):
        """Runs tests until one fails, and fails again when it runs alone. Returns the result of the mutant."""
        tests = self.order(mutant)
        result = {"status": "survived", "reached_by": [test.name for test in tests[:5]], "reaching": len(tests),
                  "ran": 0, "seconds": 0.0}
        environment = {"STAGEGPT_MUTANT": str(mutant.id)}
        limit = _FIRST_BATCH
        while tests:
            batch = next_batch(tests, limit)
            outcome = suite.run(batch, environment)
            result["seconds"] += outcome.seconds
            if not outcome.passed:
                suspect = suite.culprit(batch, outcome)
                outcome = suite.run([suspect], environment)
                result["seconds"] += outcome.seconds
                if not outcome.passed:
                    with self.lock:
                        self.kills.update([suspect.name, (mutant.file, suspect.name)])
                    return {**result, "status": "killed", "test": suspect.name, "how": outcome.how}
                batch = [suspect]  # it passes alone, so the other tests of the batch are run again
            tests = [test for test in tests if test not in batch]
            result["ran"] += len(batch)
            limit = min(2 * limit, 10.0)
            if result["seconds"] > self.budget and tests:
                return {**result, "status": "out of time"}
        return result


def next_batch(tests, limit):
    """The first test, and later tests of the same program that can run in the same process within `limit` seconds."""
    first = tests[0]
    batch, seconds = [first], first.seconds
    for test in tests[1:]:
        same = test.gtest and first.gtest and test.command[0] == first.command[0] and \
            test.environment == first.environment
        if same and "mpi" not in test.labels and seconds + test.seconds <= limit:
            batch.append(test)
            seconds += test.seconds
    return batch
