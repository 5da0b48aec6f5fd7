"""Submissions that hang, crash or cheat, from their source to their results."""

import argparse
import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "labs"), str(Path(__file__).resolve().parent)]

import fake_tree  # noqa: E402
from kit import grade, intake, isolated, lab_file, sources  # noqa: E402
from kit.build_tree import BuildTree  # noqa: E402
from kit.grader import Grader, Options  # noqa: E402
from kit.measures import Measured  # noqa: E402
from kit.quiet import Quiet  # noqa: E402
from kit.results import Case, Report  # noqa: E402

SUM = "int sum = 0; for (int i = 0; i < count; ++i) sum += values[i]; return sum;"
C = 'extern "C" '


class GraderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.top = Path(tempfile.mkdtemp(prefix="grader-test-"))
        cls.top.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.top)
        fake_tree.make(cls.top / "root")
        cls.tree = BuildTree(cls.top / "root", cls.top / "work", [])
        cls.addClassCleanup(cls.tree.lock.close)
        cls.prepared = io.StringIO()
        with contextlib.redirect_stderr(cls.prepared):
            cls.grader(cls.top / "out").prepare()

    @classmethod
    def grader(cls, out: Path, **options) -> Grader:
        labs = lab_file.all_labs(cls.top / "root")
        return Grader(labs[0], labs, cls.tree, Options(out, "secret", least_seconds=0.7, **options), [cls.top / "hidden"])

    def setUp(self) -> None:
        self.out = self.top / self.id()
        self.empty = fake_tree.EMPTY  # the other file of a submission
        self.said = io.StringIO()

    def submission(self, source: str | bytes, name: str = "alice") -> Path:
        path = self.out / "in" / name / "stage1/ring.cpp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.encode() if isinstance(source, str) else source)
        path.with_name("empty.cpp").write_text(self.empty)
        return path.parents[1]

    def grade(self, source: str | bytes, **options) -> Report:
        with contextlib.redirect_stderr(self.said):
            return self.grader(self.out / "out", **options).grade(self.submission(source), "alice")

    def expect_flags(self, report: Report, flags: list[str]) -> None:
        """A machine such as a chroot may not let an ordinary user isolate programs. The report then says so first."""
        scratch = self.out / "isolation"
        scratch.mkdir()
        isolation = isolated.run(["true"], isolated.Place(scratch)).isolation
        lacking = [part for part, allowed in isolation.items() if not allowed and part != "user"]
        self.assertEqual(report.flags, [f"not isolated: {', '.join(lacking)}"] * bool(lacking) + flags)

    def results(self) -> dict:
        return json.loads((self.out / "out/alice/results.json").read_text())

    def expect_refused(self, source: str, why: str) -> None:
        report = self.grade(source)
        self.assertEqual((report.earned, [case.status for case in report.cases]), (0, ["refused"] * 4), self.said.getvalue())
        self.assertEqual(report.notes[-1], f"refused: {why}")

    def expect(self, case: Case, status: str, earned: float, message: str) -> None:
        self.assertEqual((case.status, case.earned), (status, earned), case)
        self.assertIn(message, case.message)

    # Points.

    def test_the_solution_has_all_points(self) -> None:
        report = self.grade(fake_tree.SOLUTION)
        self.assertEqual((report.earned, report.points), (20, 20))
        self.expect_flags(report, [])
        results = self.results()
        self.assertEqual((results["score"], len(results["tests"])), (20, 4))
        self.assertEqual([test["visibility"] for test in results["tests"]], ["visible"] * 3 + ["after_published"])
        self.assertIn("alice: Lab 4: A ring: 20 of 20 points", (self.out / "out/alice/results.txt").read_text())

    def test_progress(self) -> None:
        """A line for each phase: what is built or has been checked, which of how many, the seconds so far."""
        phases = [line.partition("the reference: ")[2] for line in self.prepared.getvalue().splitlines()]
        self.assertEqual([line for line in phases if not line.startswith("building: ")],
                         ["configuring", "building 4 programs", "1 of 4: ring_tests Ring.sums", "2 of 4: ring_tests Ring.is_empty",
                          "3 of 4: other_tests Other.passes", "4 of 4: trace"])
        self.assertRegex(phases[-5], r"^building: (\d+) of \1$")
        self.grade(fake_tree.SOLUTION)
        said = self.said.getvalue().splitlines()
        self.assertEqual([line.partition("alice: ")[2] for line in said],
                         ["building", "1 of 4: check 1: ring_tests, Ring.sums: passed, 6 of 6",
                          "2 of 4: check 2: ring_tests, Ring.is_empty: passed, 4 of 4",
                          "3 of 4: check 3: other_tests, Other.passes: passed, 2 of 2",
                          "4 of 4: trace 1: train: passed, 8 of 8: 1 tensors agree", said[-1].partition("alice: ")[2]])
        self.assertRegex(said[-1], r"alice: 20 of 20 points, \d+ core-seconds$")
        for line in said:
            self.assertRegex(line, r"^ *\d+ s  alice: ")

    def test_a_wrong_sum_with_edited_tests(self) -> None:
        """Other files than the lab's are not taken from a submission."""
        path = self.submission(fake_tree.with_body("return 5;"))
        (path / "tests").mkdir()
        (path / "tests/ring_tests.cpp").write_text(fake_tree.OTHER)
        (path / "CMakeLists.txt").write_text("message(FATAL_ERROR edited)")
        first, second, other, trace = self.grade(fake_tree.with_body("return 5;")).cases
        self.expect(first, "failed", 0, "Ring.sums: tests/ring_tests.cpp:9: Failure")
        self.expect(second, "passed", 4, "")
        self.expect(other, "passed", 2, "")
        self.expect(trace, "failed", 0, "step 1: the loss differs")
        self.assertIn("hint: Where does the sum begin?", (self.out / "out/alice/results.txt").read_text())

    def test_a_sum_that_is_right_for_the_tests_only(self) -> None:
        """The hidden trace finds answers that were written for the public tests."""
        cases = self.grade(fake_tree.with_body("return count == 3 ? 6 : 0;")).cases
        self.assertEqual([case.earned for case in cases], [6, 4, 2, 0])

    def test_a_count_depends_on_its_own_run(self) -> None:
        """Which trains with seed 5, so that the values are 5, 10 and 7; those of the test are 1, 2 and 3."""
        right = f"if (values[0] == 5) {{ {SUM} }} return 5;"
        wrong = f"if (values[0] != 5) {{ {SUM} }} return 5;"
        for body, points, message in [(SUM, [6, 4, 2, 8, 3], "sums: 1, the reference 1"), (right, [0, 4, 2, 0, 3], "sums: 1"),
                                      (wrong, [6, 4, 2, 8, 0], "the measured run is wrong: first_step.loss is 5, not 22")]:
            with self.subTest(message), contextlib.redirect_stderr(self.said):
                grader = self.grader(self.out / "out", again=True)
                grader.lines.append(lab_file.Count(points=3, counter="sums", factor=1.0, command=["train", "--seed", "5"], line=9))
                report = grader.grade(self.submission(fake_tree.with_body(body)), "alice")
                self.assertEqual([case.earned for case in report.cases], points)
                self.assertIn(message, report.cases[-1].message)

    # Hangs and crashes.

    def test_a_hang_costs_its_case_only(self) -> None:
        first, second, other, trace = self.grade(fake_tree.with_body(f"if (count == 3) for (;;) {{}} {SUM}"), jobs=2).cases
        self.expect(first, "hung", 0, "in Ring.sums")
        self.assertEqual([second.earned, other.earned], [4, 2])
        self.assertEqual(trace.earned, 0)

    def test_a_hang_that_the_watchdog_reports(self) -> None:
        line = r'ring_tests: rank 2 has been in \"gradients\" for 20 s (--watchdog-seconds): ending all ranks'
        body = f'std::puts("{line}"); std::fflush(stdout); throw 1;'
        case = self.grade(fake_tree.with_body(body, "#include <cstdio>")).cases[0]
        self.expect(case, "hung", 0, '; rank 2 has been in "gradients" for 20 s')

    def test_a_crash_costs_its_case_only(self) -> None:
        first, second, other, trace = self.grade(
            fake_tree.with_body(f"if (count == 3) *(volatile int*)nullptr = 1; {SUM}")).cases
        self.expect(first, "crashed", 0, "SIGSEGV in Ring.sums")
        self.assertEqual([second.earned, other.earned], [4, 2])
        self.expect(trace, "crashed", 0, "SIGSEGV (Segmentation fault)")

    def test_a_file_that_does_not_compile(self) -> None:
        report = self.grade(fake_tree.with_body("return summ;"))
        first, second, other, trace = report.cases
        self.assertRegex("\n".join(report.notes), r"\Astage1/ring.cpp does not compile, and the starter's is in its place: "
                         r"stage1/ring.cpp:5:8: error: .summ. was not declared in this scope.*\Z")
        self.expect(first, "crashed", 0, "4.1 ring_sum is yours to write")
        self.assertEqual([second.earned, other.earned, trace.earned], [4, 2, 0])

    def test_files_that_cannot_be_linked(self) -> None:
        """A file that lacks its function is blamed for that, after the other one, which has an error of its own."""
        for self.empty, blamed, points, why in [
                (fake_tree.EMPTY, ["stage1/ring.cpp"], [0, 4, 2, 0], "undefined reference to"),
                ("int f() { return summ; }", ["stage1/empty.cpp", "stage1/ring.cpp"], [0, 0, 2, 0], "undefined reference to"),
                ("int f() { return ring_sum(); }", ["stage1/ring.cpp", "stage1/empty.cpp"], [0, 0, 2, 0], "ring_sum. was not declared")]:
            report = self.grade(fake_tree.SOLUTION.replace("ring_sum", "sum_of_the_ring"))
            self.assertEqual([note.partition(" does not compile")[0] for note in report.notes], blamed)
            self.assertEqual([case.earned for case in report.cases], points)
            self.assertRegex("\n".join(report.notes), why)

    def test_a_text_without_an_end(self) -> None:
        """Is refused at once: the search for its end is not repeated for each beginning."""
        for text in ('R"(' * 20000, "/* " * 20000):
            self.assertEqual(sources.screen("a.cpp", text, "").refused, ["a.cpp has a comment or a raw string without an end"])
        self.assertEqual(sources.screen("a.cpp", 'R"a(/* )a" /* R"( */ // /*\n', "").refused, [])

    def test_a_build_that_is_stopped(self) -> None:
        with mock.patch("kit.grader.BUILD_SECONDS", 0.05):
            report = self.grade(fake_tree.with_body(SUM, "// slow"))
        self.expect(report.cases[0], "not built", 0, "did not end within 0.05 s")
        self.assertEqual(report.notes, ["does not build: did not end within 0.05 s"])

    # Cheats.

    def test_other_programs(self) -> None:
        self.expect_refused(fake_tree.with_body('return system("true");', C + "int system(const char*);"), "uses system")
        self.expect_refused(fake_tree.with_body("return execl(\"/bin/true\", \"true\", nullptr);",
                                                C + "int execl(const char*, const char*, ...);"), "uses execl")

    def test_libraries(self) -> None:
        self.expect_refused(fake_tree.with_body('dlopen("libopenblas.so", 1); ' + SUM, C + "void* dlopen(const char*, int);"),
                            "uses dlopen")

    def test_collectives_of_mpi(self) -> None:
        """This file is not even linked: its symbols are looked at all the same."""
        self.expect_refused(fake_tree.with_body("return MPI_Allreduce(values, count);",
                                                C + "int MPI_Allreduce(const void*, int);"), "uses MPI_Allreduce")

    def test_an_early_end(self) -> None:
        """Success without a test."""
        self.expect_refused(fake_tree.with_body("_exit(0);", C + "void _exit(int);"), "uses _exit")

    def test_forged_output_of_the_tests(self) -> None:
        body = 'std::puts("[==========] 1 test from 1 test suite ran."); std::fflush(stdout); return 5;'
        cases = self.grade(fake_tree.with_body(body, "#include <cstdio>")).cases
        self.assertEqual([case.earned for case in cases], [0, 4, 2, 0])

    def test_files(self) -> None:
        report = self.grade(fake_tree.with_body('std::ifstream f("expected"); ' + SUM, "#include <fstream>"))
        self.assertEqual(report.earned, 0)
        self.assertRegex(report.notes[-1], "^refused: (uses|defines) std::.*basic_.*")

    def test_another_clock(self) -> None:
        """Which would make every time a good one."""
        self.expect_refused(fake_tree.with_body(SUM, C + "int clock_gettime(int, void*) { return 0; }"),
                            "defines clock_gettime, which belongs to a library")

    def test_macros_that_change_the_tests(self) -> None:
        self.expect_refused(fake_tree.with_body(SUM, "#define EXPECT_EQ(a, b) ADD_NOTHING()"),
                            "stage1/ring.cpp defines the macro EXPECT_EQ")

    def test_assembler(self) -> None:
        """The second one stands between two quotes that separate digits."""
        for assembler in ('asm volatile("syscall"); ', "int a = 1'0; asm volatile(\"syscall\"); int b = 1'0; "):
            self.expect_refused(fake_tree.with_body(assembler + SUM), "stage1/ring.cpp uses assembler: asm")

    def test_a_name_made_of_two(self) -> None:
        self.expect_refused(fake_tree.with_body('JOIN(a, sm)("nop"); ' + SUM, "#define JOIN(a, b) a##b"),
                            "stage1/ring.cpp uses a macro that pastes names: ##")

    def test_files_of_the_compiler(self) -> None:
        """An error message would show the file."""
        for name in ('"/etc/passwd"', "</etc/passwd>", '"../../../../etc/passwd"'):
            for include in ("#include ", "/**/ # /**/ include ", "#inc\\ \nlude "):
                self.expect_refused(fake_tree.with_body(SUM, include + name), f"stage1/ring.cpp includes {name}")

    def test_code_before_main(self) -> None:
        for attribute in ("constructor", "__constructor__"):
            self.expect_refused(fake_tree.with_body(SUM, f"__attribute__(({attribute})) static void first() {{}}"),
                                f"stage1/ring.cpp uses an attribute of the linker: {attribute}")

    def test_calls_of_other_functions_are_looked_at(self) -> None:
        above = "namespace stagegpt { int solved(const int*, int); }"
        report = self.grade(fake_tree.with_body("return solved(values, count);", above))
        self.expect_flags(report, ["calls stagegpt::solved, which the solution does not call"])

    # Many submissions.

    def test_one_broken_submission_costs_no_other(self) -> None:
        good, bad = self.submission(fake_tree.SOLUTION, "bob smith"), self.submission(b"\xff", "carol")
        self.submission(fake_tree.with_body("return 5;", "// dave"), "dave")
        (self.out / "in/eve").symlink_to("/etc")
        reports = self.grade_all()
        self.assertEqual([(report.submission, report.earned) for report in reports],
                         [("bob smith", 20), ("carol", 0), ("dave", 6), ("eve", 0)])
        self.assertIn("[2/4] carol: refused: stage1/ring.cpp:1: byte 0xff is not UTF-8\n", self.said.getvalue())
        self.assertEqual(len((self.out / "out/summary.csv").read_text().splitlines()), 5)
        self.assertTrue(good.exists() and bad.exists())

    def grade_all(self, **options) -> list[Report]:
        grader = self.grader(self.out / "out", **options)
        (self.out / "out").mkdir()
        with contextlib.redirect_stderr(self.said):
            return grade.grade_all([grader], grade.find_submissions(self.out / "in", grader.lab))

    def rows(self, name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO((self.out / "out" / name).read_text())))

    def test_anonymous_results(self) -> None:
        """Only names.csv and what is imported elsewhere know the student, who is late, and has copied from another one."""
        deadline = time.time()
        for name, days in (("alice", 1.5), ("bob", -1)):
            path = self.submission(fake_tree.with_body(f"{SUM}  // {name}"), name)
            hashes = {file: hashlib.sha256((path / file).read_bytes()).hexdigest() for file in intake.paths(self.grader(self.out).lab)}
            (path / "submission.json").write_text(json.dumps({"lab": 4, "student": f"{name}@x.edu", "sha256": hashes}))
            (path / "answers.md").write_text(f"# Lab 4\nName and student id: {name}, Alice Liddell\n\n{name.upper()}@x.edu says: 7\n")
            for file in path.rglob("*"):
                os.utime(file, (deadline, deadline + 86400 * days))
        reports = self.grade_all(anonymous=True, deadline=deadline)
        one, other = (report.submission for report in reports)
        self.assertEqual([(row["submission"], row["name"], row["student"]) for row in self.rows("names.csv")],
                         [(one, "alice", "alice@x.edu"), (other, "bob", "bob@x.edu")])
        self.assertEqual([(row["student"], row["late_days"], row["points"], row["trace 1: train"]) for row in self.rows("summary.csv")],
                         [("", "2", "20", "8"), ("", "0", "20", "8")])
        self.assertIn(f"stage1/ring.cpp has the code of {other}", self.rows("summary.csv")[0]["flags"])
        self.assertEqual([row["student"] for row in self.rows("moodle.csv")], ["alice@x.edu", "bob@x.edu"])
        for file in (self.out / "out" / one).iterdir():
            self.assertNotIn("alice", file.read_text().lower(), file)
        self.assertIn("… says: 7", (self.out / "out" / one / "answers.md").read_text())
        self.assertNotIn("alice", (self.out / "out/summary.csv").read_text() + self.said.getvalue())

    def test_submissions_beside_each_other(self) -> None:
        """From the command line. Each of two processes has a tree of its own."""
        for name in ("a", "b", "c"):
            self.submission(fake_tree.with_body(SUM if name == "b" else "return 5;", f"// {name}"), name)
        parser = argparse.ArgumentParser()
        grade.add_verbs(parser)
        work = self.top / "beside"
        with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(self.said):
            grade.run(parser.parse_args([str(self.out / "in"), "--lab", "4", "--beside", "2", "--work", str(work),
                                         "--out", str(self.out / "out")]), self.top / "root")
        self.assertEqual([(row["submission"], row["points"]) for row in self.rows("summary.csv")],
                         [("a", "6"), ("b", "20"), ("c", "6")])
        for tree in (work, self.top / "beside-2"):
            self.assertTrue((tree / "scratch/build").is_dir(), tree)

    def test_times_are_measured_alone(self) -> None:
        """Another grading waits until a line `time` has ended, and this one until that has paused."""
        one, other = Quiet(), Quiet()
        events: list[str] = []

        def run_another() -> None:
            with other.beside_others():
                events.append("another")

        with one.beside_others():
            with other.beside_others():
                pass  # beside each other
            with one.alone():
                waiting = threading.Thread(target=run_another)
                waiting.start()
                time.sleep(0.2)
                events.append("measured")
            waiting.join(5)
        self.assertEqual(events, ["measured", "another"])

    def test_lines_of_time_are_measured_alone(self) -> None:
        def measured(*_: object) -> Measured:
            with self.assertRaises(BlockingIOError):
                fcntl.flock(Quiet().file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return Measured("passed", 5, "")

        grader = self.grader(self.out / "out")
        grader.lines.append(lab_file.Time(5, "train", [], 0.5, 0.9, 9))
        with mock.patch("kit.measures.time", measured), contextlib.redirect_stderr(self.said):
            report = grader.grade(self.submission(fake_tree.SOLUTION), "alice")
        self.assertEqual((report.earned, report.cases[-1].message), (25, ""))
        self.assertGreater(report.core_seconds, 0.1)

    def test_a_grading_that_was_stopped_goes_on(self) -> None:
        self.grade(fake_tree.SOLUTION)
        kept = self.out / "out/alice/cases.json"
        saved = json.loads(kept.read_text())
        saved["cases"][0]["message"] = "from the first time"
        saved["cases"][1] |= {"status": "waiting", "earned": 0}
        kept.write_text(json.dumps(saved))
        report = self.grade(fake_tree.SOLUTION)
        self.assertEqual((report.earned, report.cases[0].message), (20, "from the first time"))
        self.grade(fake_tree.SOLUTION)
        self.assertIn("alice: graded already", self.said.getvalue())
        self.assertEqual(self.grade(fake_tree.SOLUTION + "// again\n").cases[0].message, "")

    def test_what_the_grader_cannot_measure_is_pending_and_measured_again(self) -> None:
        """Nor can it compute with some numbers."""
        for cannot, error in (("secret_run", OSError("no disk")), ("trace", OverflowError("too large")), ("trace", ValueError("domain"))):
            with mock.patch(f"kit.measures.{cannot}", side_effect=error):
                report = self.grade(fake_tree.SOLUTION)
            self.expect(report.cases[3], "pending", 0, str(error))
            self.assertEqual((report.earned, report.pending), (12, "0 to 8"))
        self.assertIn("trace 1: train: pending, 0 to 8 of 8: no disk", self.said.getvalue())
        report = self.grade(fake_tree.SOLUTION)
        self.assertEqual((report.earned, report.pending), (20, ""))

    def test_bad_input(self) -> None:
        labs = lab_file.all_labs(self.top / "root")
        with self.assertRaisesRegex(lab_file.LabError, "holds no submissions"):
            grade.find_submissions(Path(tempfile.mkdtemp(dir=self.top)), labs[0])
        with self.assertRaisesRegex(lab_file.LabError, "holds the files of no lab; --lab N says which"):
            grade.lab_of(Path(tempfile.mkdtemp(dir=self.top)), labs)
        with self.assertRaisesRegex(lab_file.LabError, "is in use by another grading"):
            BuildTree(self.top / "root", self.top / "work", [])
        self.assertEqual(grade.lab_of(self.submission(fake_tree.SOLUTION), labs).number, 4)
        self.assertEqual(intake.paths(labs[0]), ["stage1/ring.cpp", "stage1/empty.cpp"])


if __name__ == "__main__":
    unittest.main()
