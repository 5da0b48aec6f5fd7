"""Counts, traces and times, with shell scripts as programs."""

import dataclasses
import math
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "labs"))

from kit import measures  # noqa: E402
from kit.isolated import Limits, Place  # noqa: E402
from kit.lab_file import Count, LabError, Time, Trace  # noqa: E402
from kit.measures import Measured, Pair  # noqa: E402
from kit.programs import Command, Programs  # noqa: E402

# Writes the trace of a run whose only tensor is its --seed times a factor.
TRAIN = """while [ $# -gt 0 ]; do case $1 in --seed) seed=$2;; --run-dir) run=$2;; esac; shift; done
mkdir -p "$run/traces"; echo $((seed FACTOR)) >"$run/traces/step_00000001.safetensors"
"""
COMPARE = """if cmp -s "$2"/step* "$3"/step*; then echo 1 tensors agree; else echo step 1: the loss differs; exit 1; fi"""


class MeasuresTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="measures-test-"))
        self.top.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        scratch = self.top / "scratch"
        self.student, self.reference = (
            Programs(self.top / who, {}, Place(scratch), Limits(seconds=5))
            for who in ("student", "reference"))
        self.pair = Pair(self.student, self.reference, scratch)

    def program(self, where: Programs, name: str, script: str) -> None:
        where.directory.mkdir(exist_ok=True)
        (where.directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (where.directory / name).chmod(0o755)

    def expect(self, measured: Measured, status: str, earned: float, message: str) -> None:
        self.assertEqual((measured.status, measured.earned, measured.message), (status, earned, message))

    # Counts.

    def count(self, students: str, references: str, factor: float = 1.0, counter: str = "peak") -> Measured:
        self.program(self.student, "bench", students)
        self.program(self.reference, "bench", references)
        return measures.count(Count(6, counter, factor, ["bench", "--comm", "ring"], 9), self.pair)

    def test_counts_are_exact(self) -> None:
        self.expect(self.count("echo '{\"peak\": 1000}'", "echo '{\"peak\": 1000}'"), "passed", 6,
                    "peak: 1000, the reference 1000")
        self.expect(self.count("echo '{\"peak\": 1001}'", "echo '{\"peak\": 1000}'"), "failed", 0,
                    "peak: 1001, the reference 1000; allowed 1000")
        self.expect(self.count("echo '{\"peak\": 1001}'", "echo '{\"peak\": 1000}'", 1.1), "passed", 6,
                    "peak: 1001, the reference 1000")

    def test_a_count_that_is_too_good_is_looked_at(self) -> None:
        measured = self.count("echo '{\"peak\": 10}'", "echo '{\"peak\": 1000}'")
        self.assertEqual(measured.flags, ["peak: 10, the reference 1000: less than half"])

    def test_results_of_the_measured_run(self) -> None:
        """Of its first and its last step, to 0.01 %, as far as the reference's program prints them."""
        printed = 'echo \'{"peak": 1000, "tokens_per_second": 5, "first_step": {"loss": 4}, "last_step": {"loss": %s}}\''
        for loss, wrong in [("3.0002", ""), ("NaN", "None"), ("3.001", "3.001")]:
            message = f"the measured run is wrong: last_step.loss is {wrong}, not 3"
            self.expect(self.count(printed % loss, printed % "3"), "failed" if wrong else "passed", 0 if wrong else 6,
                        message if wrong else "peak: 1000, the reference 1000")
        self.expect(measures.time(Time(10, "bench", [], 0.4, 0.9, 9), self.pair), "failed", 0, message)
        self.expect(self.count(printed % "3", "echo '{\"peak\": 1000}'"), "passed", 6, "peak: 1000, the reference 1000")

    def test_counts_that_are_none(self) -> None:
        good = "echo '{\"peak\": 1000}'"
        for bad in ("echo '{\"peak\": NaN}'", f"echo '{{\"peak\": {'9' * 400}}}'",
                    "echo '{\"a\": {\"peak\": 1e308}, \"b\": {\"peak\": 1e308}}'", "yes [ | tr -d '\\n' | head -c 100000",
                    "rm result.json; ln -s /etc/passwd result.json",
                    "rm result.json; echo '{\"peak\": 1}' >other; ln other result.json"):
            self.expect(self.count(bad, good), "failed", 0, "printed no counter peak")
        self.assertEqual(self.count("kill -SEGV $$", good).status, "crashed")
        with self.assertRaisesRegex(LabError, "count peak: bench prints no such counter"):
            self.count(good, "echo '{}'")
        with self.assertRaisesRegex(LabError, "the reference's bench failed: exit code 1"):
            self.count(good, "exit 1")

    def test_counters_of_a_document(self) -> None:
        document = {"kernels": [{"name": "tiled<float>", "lines": [{"sectors": 3}, {"sectors": 4}]},
                                {"name": "tiled<double>", "lines": [{"sectors": 5}]},
                                {"name": "naive", "lines": [{"sectors": 100}]}], "memory": {"bytes": 7}}
        self.assertEqual(measures.counter(document, "kernels.tiled.sectors"), 12)
        self.assertEqual(measures.counter(document, "sectors"), 112)
        self.assertEqual(measures.counter(document, "memory.bytes"), 7)
        self.assertIsNone(measures.counter(document, "kernels.other.sectors"))
        self.assertEqual(measures.counter({"kernels": [], "races": [{"kernel": "a"}, {"kernel": "b"}]}, "races"), 2)
        self.assertEqual(measures.counter({"kernels": [], "races": []}, "races"), 0)

    def test_bytes_of_messages_are_counted_by_a_library(self) -> None:
        """Which is preloaded into the program, and writes a file of its own."""
        for where, count in ((self.student, 7), (self.reference, 5)):
            self.program(where, "bench", f'echo "{{\\"bytes\\": {count}}}" >"$STAGEGPT_MESSAGES"\n'
                                         'echo "{\\"bytes\\": ${#LD_PRELOAD}}"')
        pair = dataclasses.replace(self.pair, counting_library=Path("/nowhere/libmessages.so"))
        measured = measures.count(Count(6, "bytes", 1, ["bench"], 9), pair)
        self.expect(measured, "failed", 0, "bytes: 7, the reference 5; allowed 5")

    def test_the_place_of_an_emulator_report(self) -> None:
        """`-` in the lab file is a directory of the grader's choice."""
        script = "echo $2 | grep -q counts && mkdir $2 && echo '{\"races\": 2}' >$2/report.json"
        for where in (self.student, self.reference):
            self.program(where, "bench", script)
        measured = measures.count(Count(6, "races", 1, ["bench", "--emulator-report", "-"], 9), self.pair)
        self.expect(measured, "passed", 6, "races: 2, the reference 2")

    def test_commands(self) -> None:
        self.assertEqual(Command.parse("bench -np 3 -- --comm ring".split()), Command("bench", 3, ["--comm", "ring"]))
        self.assertEqual(Command.parse("bench --comm ring".split()), Command("bench", None, ["--comm", "ring"]))
        with self.assertRaisesRegex(LabError, "expected a number of ranks"):
            Command.parse(["bench", "-np", "many"])

    # Traces.

    def trace(self, students: str, references: str = TRAIN.replace("FACTOR", "* 3")) -> Measured:
        self.program(self.student, "train", students)
        self.program(self.reference, "train", references)
        self.program(self.reference, "compare_stages", COMPARE)
        return measures.trace(Trace(20, "train", None, ["--comm", "ring"], 9), self.pair, "secret", self.reference)

    def test_traces(self) -> None:
        self.expect(self.trace(TRAIN.replace("FACTOR", "+ seed + seed")), "passed", 20, "1 tensors agree")
        self.expect(self.trace(TRAIN.replace("FACTOR", "* 4")), "failed", 0, "step 1: the loss differs")
        self.expect(self.trace("exit 0"), "failed", 0, "wrote no traces")
        self.assertEqual(self.trace("kill -BUS $$").message, "SIGBUS (Bus error)")

    def test_a_trace_that_is_a_link_to_the_reference(self) -> None:
        """The student's program guesses where the expected trace is, and links its own trace to it."""
        expected = self.pair.scratch / "traces-reference"
        for cheat in (f'mkdir -p "$run/traces"; ln -s {expected}/step_00000001.safetensors "$run/traces/"',
                      f'mkdir -p "$run"; ln -s {expected} "$run/traces"', f'ln -s {expected}/.. "$run"'):
            measured = self.trace(TRAIN.splitlines()[0] + "\n" + cheat)
            self.expect(measured, "failed", 0, "wrote no traces")

    def test_the_same_secret_gives_the_same_run(self) -> None:
        one, again, other = (measures.secret_run(secret, 3) for secret in ("a", "a", "b"))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        self.assertEqual(int(one.flags["--batch-size"]) % 3, 0)
        self.assertEqual(measures.secret_run("a", 2, reproducible=True).flags["--batch-size"], "8")

    # Times.

    def judge(self, ratios: list[float], own: list[float] = (1.0,) * 7, walls: list[float] = (1.0,) * 7) -> Measured:
        return measures.judge(Time(10, "bench", [], 0.4, 0.9, 9), list(ratios), list(own), list(walls))

    def test_points_grow_with_the_logarithm_of_the_ratio(self) -> None:
        self.assertEqual(self.judge([0.9] * 7).earned, 10)
        self.assertEqual(self.judge([1.4] * 7).earned, 10)
        self.assertEqual(self.judge([0.4] * 7).earned, 0)
        for tiny in (0.1, 1e-320, 0.0):
            self.assertEqual(self.judge([tiny] * 7).earned, 0)
        self.assertAlmostEqual(self.judge([0.6] * 7).earned, 10 * math.log(0.6 / 0.4) / math.log(0.9 / 0.4))

    def test_the_lower_quartile_counts(self) -> None:
        measured = self.judge([0.5, 0.6, 0.6, 0.9, 0.9, 0.9, 0.9])
        self.assertAlmostEqual(measured.earned, 10 * math.log(0.6 / 0.4) / math.log(0.9 / 0.4))
        self.assertEqual(measured.details, "7 pairs in turns, student / reference: quartiles 0.60, 0.90, 0.90, from 0.50 to 0.90")

    def test_on_a_busy_machine_an_instructor_decides(self) -> None:
        """Within what the slowest and the fastest pair give; if that is nothing, there is nothing to decide."""
        busy = [1.0, 1.0, 1.0, 0.7, 0.7, 0.7, 1.3]
        measured = self.judge([0.6, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5], own=busy)
        self.expect(measured, "pending", 0, "the machine was busy: the reference differs from itself by 43%")
        self.assertEqual(measured.pending, (0, 10 * math.log(0.6 / 0.4) / math.log(0.9 / 0.4)))
        self.assertEqual(self.judge([0.45, *[1.0] * 6], own=busy).pending[1], 10)
        self.expect(self.judge([0.1] * 6 + [0.4], own=busy), "failed", 0,
                    "0.10 times the reference's speed; 0.4 gives no points, 0.9 all")
        self.assertEqual(self.judge([0.5] * 7, own=[0.95, 1.05, 1, 1, 1, 0.96, 5]).status, "failed")

    def test_speeds_that_are_too_good_are_looked_at(self) -> None:
        self.assertEqual(self.judge([3.0] * 7).flags, ["3.00 times as fast as the reference"])
        self.assertEqual(self.judge([0.9] * 7, walls=[3.0] * 7).flags,
                         ["reports 0.90 times the reference's speed, but its process takes 3.00 times as long"])
        self.assertEqual(self.judge([0.5] * 7, walls=[2.0] * 7).flags, [])

    def test_a_run_of_the_reference_serves_the_pairs_before_and_after_it(self) -> None:
        """A machine that becomes slower from run to run: each speed is 0.98 times the one before. The student's, at half of
        the reference's speed, lies between its neighbours, so the ratio is 0.5."""
        said: list[str] = []
        turns = self.top / "turns"
        for where, factor in ((self.student, 0.5), (self.reference, 1)):
            self.program(where, "bench", f"echo x >>'{turns}'; awk 'END {{ printf(\"{{\\\"tokens_per_second\\\": %.9g}}\", "
                                         f"{factor} * 1000 * 0.98 ^ NR) }}' '{turns}'")
        turns.touch()
        turns.chmod(0o666)
        pair = Pair(*(Programs(one.directory, {}, Place(one.place.scratch, show=[self.top]), Limits(seconds=5))
                      for one in (self.student, self.reference)), self.pair.scratch, say=said.append)
        with mock.patch.object(measures, "PAIRS", 3), mock.patch.object(measures, "judge") as judge:
            measures.time(Time(10, "bench", [], 0.4, 0.9, 9), pair)
        _, ratios, own, walls = judge.call_args.args
        self.assertEqual([round(ratio, 6) for ratio in ratios], [0.5] * 3)
        self.assertEqual([round(ratio, 6) for ratio in own], [round(0.98 ** 2, 6)] * 3)
        self.assertEqual((len(walls), len(said)), (3, 7))
        self.assertRegex(said[1], r"\Arun 2 of 7, student: 480.2 tokens/s, \d+ s\Z")

    def test_pairs_in_turns(self) -> None:
        """The programs note their turns outside of their scratch directories."""
        turns = self.top / "turns"
        turns.touch()
        turns.chmod(0o666)
        for where, speed in ((self.student, 60), (self.reference, 100)):
            name = where.directory.name
            self.program(where, "bench", f"echo {name} >>'{turns}'; echo '{{\"tokens_per_second\": {speed}}}'")
        show = [self.top]
        pair = Pair(*(Programs(one.directory, {}, Place(one.place.scratch, show=show), Limits(seconds=5))
                      for one in (self.student, self.reference)), self.pair.scratch)
        with mock.patch.object(measures, "PAIRS", 2):
            measured = measures.time(Time(10, "bench", [], 0.4, 0.9, 9), pair)
        self.assertEqual(turns.read_text().split(), ["reference", "student"] * 2 + ["reference"])
        self.assertEqual(measured.message, "0.60 times the reference's speed; 0.4 gives no points, 0.9 all")
        self.program(self.student, "bench", "echo '{\"tokens_per_second\": -5}'")
        self.expect(measures.time(Time(10, "bench", [], 0.4, 0.9, 9), pair), "failed", 0, "printed no tokens_per_second")


if __name__ == "__main__":
    unittest.main()
