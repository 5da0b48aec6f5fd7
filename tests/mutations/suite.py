"""Reads the list of tests from CTest, and runs tests with a mutant."""

import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections import defaultdict, namedtuple
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_FILTER = "--gtest_filter="
# Bytes of memory that a process may write to (address ranges that are only reserved do not count), and of a file.
_LIMITS = {resource.RLIMIT_DATA: 8 << 30, resource.RLIMIT_FSIZE: 8 << 30, resource.RLIMIT_CORE: 0}
_locks = defaultdict(threading.Lock)  # by the name of the resource, as in CTest

Outcome = namedtuple("Outcome", "how seconds output")  # how: "passed", "failed", "crashed" or "timed out"


@dataclass
class Test:
    name: str
    command: list
    directory: str
    environment: dict
    locks: list
    seconds: float = 0.0  # without a mutant

    @property
    def gtest(self):
        """The name of the test in its GoogleTest program; None for other programs."""
        return next((word[len(_FILTER):] for word in self.command[1:] if word.startswith(_FILTER)), None)


def discover(build, left_out, programs):
    """The tests whose command contains a program of the build, or the directory of its programs.

    If `programs` is not empty, only tests of these programs. Tests with a label in `left_out` are skipped.
    """
    if "STAGEGPT_SANITIZE:BOOL=ON" in (build / "CMakeCache.txt").read_text():
        _LIMITS.pop(resource.RLIMIT_DATA, None)  # AddressSanitizer maps terabytes
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    tests = []
    for entry in json.loads(listed.stdout)["tests"]:
        properties = {item["name"]: item["value"] for item in entry.get("properties", [])}
        command = entry.get("command", [])
        program = next((Path(word) for word in command if word.startswith(str(build)) and Path(word).exists()), None)
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        if "GTEST_FILTER" in environment and "GTEST_TOTAL_SHARDS" not in environment:
            continue  # a part of a program whose shards list all its tests (_apart)
        if program is None or set(properties.get("LABELS", [])) & set(left_out) or (programs and program.name not in programs):
            continue
        environment |= dict(line.split("=set:", 1) for line in properties.get("ENVIRONMENT_MODIFICATION", []))
        test = Test(entry["name"], command, properties.get("WORKING_DIRECTORY", str(build)), environment,
                    properties.get("RESOURCE_LOCK", []))
        if "GTEST_TOTAL_SHARDS" not in environment:
            tests.append(test)
        elif environment["GTEST_SHARD_INDEX"] == "0":
            tests += _apart(test)
    return tests


def _apart(shard):
    """All tests of a program that CTest runs as several shards."""
    listed = subprocess.run([*shard.command, "--gtest_list_tests"], check=True, capture_output=True, text=True)
    environment = {key: value for key, value in shard.environment.items() if not key.startswith("GTEST_")}
    tests, suite = [], None
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            name = suite + name.strip()
            tests.append(Test(f"{Path(shard.command[0]).name}.{name}", [*shard.command, _FILTER + name], shard.directory,
                              environment, shard.locks))
        elif name.endswith("."):
            suite = name
    return tests


def run(tests, environment, patience=30):
    """Runs one test, or several tests of one program in one process, until one fails.

    The timeout is 15 times the time without a mutant, plus `patience` seconds. Each process may use a third of that
    as processor time.
    """
    with ExitStack() as held:
        for name in sorted(tests[0].locks):
            held.enter_context(_locks[name])
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="mut.", dir="/tmp", ignore_cleanup_errors=True)))
        return _run(tests, environment, patience + 15 * sum(test.seconds for test in tests), scratch)


def _run(tests, environment, timeout, scratch):
    command, mark = tests[0].command, uuid.uuid4().hex
    if len(tests) > 1:  # in a file: thousands of names are too long for a command line
        (scratch / "flags").write_text(_FILTER + ":".join(test.gtest for test in tests))
        command = [word for word in command if not word.startswith(_FILTER)]
        command += ["--gtest_fail_fast", f"--gtest_flagfile={scratch / 'flags'}"]
    environment = {**os.environ, **tests[0].environment, **environment, "STAGEGPT_MUTANTS_RUN": mark,
                   "TMPDIR": str(scratch)}  # a short path: MPI creates sockets in it

    def limit():
        processor = int(timeout / 3) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 2))
        for kind, most in _LIMITS.items():
            resource.setrlimit(kind, (most, most))

    began = time.monotonic()
    with open(scratch / "output", "w+b") as output:
        child = subprocess.Popen(command, cwd=tests[0].directory, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, preexec_fn=limit, start_new_session=True)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        _end_all(mark)
        child.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read().decode(errors="replace")
    timed_out = status in (-signal.SIGXCPU, -signal.SIGKILL)
    how = "timed out" if timed_out else "crashed" if status < 0 else "failed" if status else "passed"
    return Outcome(how, seconds, text)


def _end_all(mark):
    """Kills every process that a test has left running. `mark` is in the environment of these processes."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


def reached(test, size, longest):
    """Runs a test without a mutant. Returns how that ended, its time, and which of `size` mutants it reaches."""
    with tempfile.NamedTemporaryFile(prefix="mut.", dir="/tmp") as file:
        file.write(bytes(size))
        file.flush()
        outcome = run([test], {"STAGEGPT_MUTANTS_REACHED": file.name}, patience=3 * longest)
        reaches = [i for i, byte in enumerate(Path(file.name).read_bytes()) if byte]
    return {"test": test.name, "how": outcome.how, "seconds": outcome.seconds, "reaches": reaches}


def next_batch(tests, limit):
    """The first test, and later tests of the same program that can run in the same process within `limit` seconds."""
    first = tests[0]
    batch, seconds = [first], first.seconds
    for test in tests[1:]:
        same = test.gtest and first.gtest and (test.command[0], test.environment, test.locks) == \
            (first.command[0], first.environment, [])
        if same and seconds + test.seconds <= limit:
            batch.append(test)
            seconds += test.seconds
    return batch


def culprit(tests, outcome):
    """The test that failed, or that was running when the process ended."""
    by_name = {test.gtest: test for test in tests}
    for pattern in (r"^\[  FAILED  \] ([^ ,]+)", r"^\[ RUN      \] ([^ ,\n]+)"):
        found = [name for name in re.findall(pattern, outcome.output, re.MULTILINE) if name in by_name]
        if found:
            return by_name[found[-1]]
    return tests[0]
