"""Reads the list of tests from CTest, and runs tests with a mutant."""

import fnmatch
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

_ENDED = re.compile(r"^\[ +(OK|SKIPPED|FAILED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)", re.MULTILINE)
_FILTER = "--gtest_filter="
_MEMORY = 8 << 30  # bytes of memory that a process may write to; address ranges that are only reserved do not count
_one_of_ranks = threading.Lock()  # tests that start ranks run one at a time


@dataclass
class Test:
    name: str
    command: list
    directory: str
    environment: dict
    labels: list
    seconds: float = 0.0  # without a mutant

    @property
    def gtest(self):
        """The name of the test in its GoogleTest program; None for other programs."""
        name = next((word for word in self.command[1:] if word.startswith(_FILTER)), None)
        return name and name[len(_FILTER):]


@dataclass
class Outcome:
    passed: bool
    how: str       # "passed", "failed", "crashed" or "timed out"
    seconds: float
    output: str


def discover(build, left_out, programs=()):
    """The tests whose command contains a program of the build, or the directory of its programs.

    If `programs` is not empty, only tests of these programs. Tests with a label in `left_out` are skipped.
    """
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True, text=True)
    tests = []
    for entry in json.loads(listed.stdout)["tests"]:
        properties = {item["name"]: item["value"] for item in entry.get("properties", [])}
        labels = properties.get("LABELS", [])
        command = entry.get("command", [])
        # A test of all programs names their directory.
        program = next((Path(word) for word in command if word.startswith(str(build)) and Path(word).exists()), None)
        if program is None or set(labels) & set(left_out) or (programs and program.name not in programs):
            continue
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        environment |= dict(line.split("=set:", 1) for line in properties.get("ENVIRONMENT_MODIFICATION", []))
        test = Test(entry["name"], command, properties.get("WORKING_DIRECTORY", str(build)), environment, labels)
        if "GTEST_TOTAL_SHARDS" not in environment:
            tests.append(test)
        elif environment["GTEST_SHARD_INDEX"] == "0":
            tests += apart(test)
    return tests


def apart(group):
    """All tests of a program that CTest runs as several shards. `group` is one of the shards."""
    listed = subprocess.run([*group.command, "--gtest_list_tests"], check=True, capture_output=True, text=True)
    environment = {key: value for key, value in group.environment.items() if not key.startswith("GTEST_")}
    tests, suite = [], None
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            name = suite + name.strip()
            tests.append(Test(f"{Path(group.command[0]).name}.{name}", [*group.command, _FILTER + name],
                              group.directory, environment, group.labels))
        elif name.endswith("."):
            suite = name
    return tests


def run(tests, environment, patience=30, stop_at_first=True):
    """Runs one test, or several tests of one program in one process.

    The timeout is 15 times the time without a mutant, plus `patience` seconds. Each process may use a third of that
    as processor time.
    """
    command = list(tests[0].command)
    if len(tests) > 1:
        command = [word for word in command if not word.startswith(_FILTER)]
        command += ["--gtest_fail_fast"] if stop_at_first else []
    if "mpi" in tests[0].labels:
        with _one_of_ranks:
            return _run(command, tests, environment, patience)
    return _run(command, tests, environment, patience)


def _run(command, tests, environment, patience):
    expected = sum(test.seconds for test in tests)
    mark = f"STAGEGPT_MUTANTS_RUN={uuid.uuid4().hex}"
    scratch = tempfile.mkdtemp(prefix="mut.", dir="/tmp")  # a short path: MPI creates sockets in it
    environment = {**os.environ, **tests[0].environment, **environment, "TMPDIR": scratch,
                   **dict([mark.split("=")])}

    processor = int(patience / 3 + 5 * expected) + 1

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 2))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    began = time.monotonic()
    if len(tests) > 1:  # in a file: thousands of names are too long for a command line
        flags = Path(scratch) / "flags"
        flags.write_text(_FILTER + ":".join(test.gtest for test in tests))
        command.append(f"--gtest_flagfile={flags}")
    with open(Path(scratch) / "output", "w+b") as output:
        child = subprocess.Popen(command, cwd=tests[0].directory, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit, start_new_session=True)
        try:
            status = child.wait(timeout=patience + 15 * expected)
        except subprocess.TimeoutExpired:
            status = None
        _end_all(mark)
        child.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read().decode(errors="replace")
    shutil.rmtree(scratch, ignore_errors=True)
    if status == 0:
        return Outcome(True, "passed", seconds, text)
    timed_out = status is None or status in (-signal.SIGXCPU, -signal.SIGKILL)
    return Outcome(False, "timed out" if timed_out else "crashed" if status < 0 else "failed", seconds, text)


def _end_all(mark):
    """Kills every process that a test has left running. `mark` is in the environment of these processes."""
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


def reached(tests, size, longest):
    """Runs tests of one program without a mutant, in one process. Returns for each test whether it passes, its time,
    and which of `size` mutants it reaches. If there are several tests, recorder.cpp records this for each of them;
    tests without a record are omitted."""
    with tempfile.TemporaryDirectory(prefix="mut.", dir="/tmp") as name:
        directory = Path(name)
        (directory / "start").write_bytes(bytes(size))
        environment = {"STAGEGPT_MUTANTS_REACHED": str(directory / "start")}
        if len(tests) > 1:
            environment["STAGEGPT_MUTANTS_TESTS"] = name
        outcome = run(tests, environment, patience=longest * len(tests), stop_at_first=False)
        start = (directory / "start").read_bytes()
        if len(tests) == 1:
            return {tests[0].name: _found(outcome.passed, outcome.seconds, start)}
        found = {}
        ended = {name: (how != "FAILED", int(time) / 1000) for how, name, time in _ENDED.findall(outcome.output)}
        for test in tests:
            record = directory / test.gtest.replace("/", "%")
            if test.gtest in ended and record.exists():
                both = bytes(a | b for a, b in zip(record.read_bytes(), start))
                found[test.name] = _found(*ended[test.gtest], both)
        return found


def _found(passed, seconds, reached_bytes):
    return {"passed": passed, "seconds": seconds, "reaches": [i for i, byte in enumerate(reached_bytes) if byte]}


def culprit(tests, outcome):
    """The test that failed, or that was running when the process ended."""
    by_name = {test.gtest: test for test in tests}
    for pattern in (r"^\[  FAILED  \] ([^ ,]+)", r"^\[ RUN      \] ([^ ,\n]+)"):
        found = [name for name in re.findall(pattern, outcome.output, re.MULTILINE) if name in by_name]
        if found:
            return by_name[found[-1]]
    return tests[0]


def named(tests, patterns):
    return [test for test in tests if any(fnmatch.fnmatchcase(test.name, pattern) for pattern in patterns)]
