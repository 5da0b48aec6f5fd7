"""`lab check`: what a student sees for work that passes, fails, does not compile, crashes or hangs."""

import io
import re
import sys
import time
import unittest

from small_tree import ROOT, lab, small_tree, temporary

sys.path.insert(0, str(ROOT / "labs"))

from kit import building, checks, test_output  # noqa: E402
from kit.commands import Ended, run  # noqa: E402
from kit.lab_file import Check  # noqa: E402

GOOD_SUM = "inline int sum(int a, int b) { return a + b; }\ninline int twice(int a) { return 2 * a; }\n"
GOOD_LOOP = "inline int loop(int n) { return n; }\n"


class CheckVerb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary(_Cleanups(cls))
        cls.target = cls.folder / "work"
        ended = lab(small_tree(cls.folder), "start", 1, "--dir", cls.target, "--no-reference")
        assert ended.returncode == 0, ended.stderr

    def check(self, sum_text, loop_text, *more):
        for name, text in (("sum file.h", sum_text), ("loop.h", loop_text)):
            (self.target / "src" / name).write_text(text)
        ended = lab(self.target, "check", "--seconds", 20, *more, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        return ended.returncode, re.sub(r"\(\d+\.\d s\)", "(S)", ended.stdout), ended.stderr

    def test_all_pass(self):
        code, output, _ = self.check(GOOD_SUM, GOOD_LOOP)
        self.assertEqual((code, output), (0, "passed     5 of 5   sum_tests Sum.adds  (S)\n"
                                             "passed     3 of 3   sum_tests Sum.twice:Sum.adds  (S)\n"
                                             "passed     2 of 2   loop_tests@1-2 Loop.*  (S)\n"
                                             "3 of 3 checks pass: 10 of 10 points\n"))

    def test_what_is_not_written_yet_fails_with_its_number_and_the_hint(self):
        todo = '#include "labs/kit/todo.h"\ninline int sum(int a, int b) { lab::todo("1.1 sum"); }\n'
        code, output, errors = self.check(todo + "inline int twice(int a) { return 2 * a; }\n", GOOD_LOOP)
        self.assertEqual((code, output), (1, "failed     0 of 5   sum_tests Sum.adds  (S)\n"
                                             "    Sum.adds: 1.1 sum is yours to write\n"
                                             "    Hint: Addition, not subtraction.\n    Hint: And no overflow.\n"
                                             "0 of 3 checks pass: 0 of 10 points\n"))
        self.assertNotIn("warning", errors)

    def test_all_goes_on(self):
        code, output, _ = self.check(GOOD_SUM.replace("2 * a", "3 * a"), GOOD_LOOP, "--all")
        self.assertEqual((code, output), (1, "passed     5 of 5   sum_tests Sum.adds  (S)\n"
                                             "failed     0 of 3   sum_tests Sum.twice:Sum.adds  (S)\n"
                                             "    Sum.twice: src/tests.cpp:7: Failure\n    Wrong sum\n"
                                             "passed     2 of 2   loop_tests@1-2 Loop.*  (S)\n"
                                             "2 of 3 checks pass: 7 of 10 points\n"))

    def test_the_first_compiler_error_has_file_and_line(self):
        code, output, _ = self.check("inline int sum(int a, int b) {\n  return c;\n  return d;\n}\n", GOOD_LOOP, "--all")
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?s)\Anot built  0 of 5   sum_tests Sum.adds  \(S\)\n"
                                 r"    /.*/src/sum file\.h:2:10: error: .c. was not declared in this scope\n    Hint: .*"
                                 r"not built  0 of 3 .*passed     2 of 2 ")

    def test_an_exception_that_nobody_catches_is_a_crash_with_its_reason(self):
        code, output, _ = self.check(GOOD_SUM, '#include "labs/kit/todo.h"\n'
                                     'inline int loop(int n) noexcept { lab::todo("1.3 loop"); }\n')
        self.assertEqual(code, 1)
        self.assertIn("crashed    0 of 2   loop_tests@1-2 Loop.*  (S)\n"
                      "    on 1 rank: SIGABRT in Loop.ends: 1.3 loop is yours to write\n    Hint: Does it end?\n", output)

    def test_an_endless_loop_is_ended(self):
        code, output, _ = self.check(GOOD_SUM, "inline int loop(int n) { volatile int i = n; while (i > 0) i = n; return i; }\n",
                                     "--seconds", 4)
        self.assertEqual(code, 1)
        self.assertRegex(output, r"hung       0 of 2   loop_tests@1-2 Loop.\*  \(S\)\n    on 1 rank: not done after \d+ s in Loop.ends\n")

    def test_user_errors(self):
        ended = lab(self.target, "check", "--seconds", "x")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("invalid float value: 'x'", ended.stderr)
        ended = lab(self.target, "check", "--build", self.target / "README.md")
        self.assertEqual(ended.returncode, 2)
        self.assertRegex(ended.stderr, r"\Alab: cmake could not configure .*\n\Z")


class _Cleanups:
    """Lets a class use what is written for a test."""

    def __init__(self, cls):
        self.addCleanup = cls.addClassCleanup


class Judging(unittest.TestCase):
    CHECK = Check(1, "some_tests", [], "A.*", "", 1)

    def judged(self, output, code=0, signal=None, stopped=None):
        return checks.judge(self.CHECK, Ended(code, signal, stopped, 3.0, output))

    def test_no_test_is_no_success(self):
        end = "[==========] Running 0 tests from 0 test suites.\n[==========] 0 tests from 0 test suites ran. (0 ms total)\n"
        self.assertEqual(self.judged(end + "[  PASSED  ] 0 tests.\n"), ("failed", "some_tests has no test A.*"))
        self.assertEqual(self.judged(""), ("failed", "some_tests has no test A.*"))

    def test_skipped_tests_are_no_success(self):
        output = ("[ RUN      ] A.a\na.cpp:3: Skipped\nno GPU\n\n[  SKIPPED ] A.a (0 ms)\n"
                  "[==========] 1 test from 1 test suite ran. (0 ms total)\n[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n")
        self.assertEqual(self.judged(output), ("failed", "skipped: no GPU"))

    def test_a_crash_of_a_rank(self):
        output = ("[ RUN      ] A.a\nterminate called after throwing an instance of 'std::logic_error'\n"
                  "  what():  4.1 Ring::sent is yours to write\n"
                  "mpirun noticed that process rank 1 with PID 0 on node x exited on signal 6 (Aborted).\n")
        self.assertEqual(self.judged(output, 134), ("crashed", "SIGABRT in A.a: 4.1 Ring::sent is yours to write"))

    def test_a_kernel_that_the_emulator_ended(self):
        output = ("[ RUN      ] A.a/forward\n/x/tests/unit/a.cpp:63: Failure\nExpected equality\n"
                  "kernel k<float, 1>, block (1,0,0), thread (74,0,0): reads or writes beyond an allocation\nrows.h:7\nk.cuh:41\n")
        self.assertEqual(self.judged(output, None, 6), (
            "crashed", "SIGABRT in A.a/forward: kernel k<float, 1>, block (1,0,0), thread (74,0,0): reads or writes beyond an "
                       "allocation, rows.h:7, k.cuh:41"))

    def test_hints_fit_the_failure(self):
        """The emulator's messages, as labs 5 and 6 show them, have hints of their own."""
        check = Check(1, "stage2_tests", [], "x", "Each lane adds.\nTwice.", 1)
        kernel = "kernel layernorm_v2_kernel, block (0,0,0), thread (0,0,0): "
        for message, hint in [
                ("reads sums[128], which is uninitialised: no thread of the block has written it yet", "A barrier is missing"),
                ("writes sums[0], which thread (254,0,0) has read with no barrier in between", "A barrier is missing"),
                ("calls __syncthreads in a.cuh:47, while thread (0,0,0) waits in __syncthreads in a.cuh:43", "All threads of a block"),
                ("lane 1 has exited, but thread (0,0,0) waits in __shfl_xor_sync", "All threads that a barrier"),
                ("reads sums[1], beyond its 1 elements", "An index is beyond the shared array"),
                ("reads or writes beyond an allocation of device memory: byte 8", "An index is beyond an array of device")]:
            (found,) = checks.hints(check, kernel + message)
            self.assertTrue(found.startswith(hint), (message, found))
        self.assertEqual(checks.hints(check, "actual: 3, expected 4"), ["Each lane adds.", "Twice."])

    def test_a_failure_of_another_rank(self):
        output = "[ RUN      ] A.a\nrank 2: By/A.a/ring, /x/tests/mpi/a.cpp:7: Expected equality\n  Which is: 3\n"
        self.assertEqual(self.judged(output, 1), ("failed", "rank 2: By/A.a/ring, /x/tests/mpi/a.cpp:7: Expected equality\n  Which is: 3"))

    def test_failures_of_several_ranks_have_the_name_once(self):
        output = ("[ RUN      ] By/A.a/ring\nrank 1: By/A.a/ring, /x/tests/mpi/a.cpp:7: Failed\nelement 0: 2, not 1\n"
                  "/x/tests/mpi/a.cpp:7: Failure\nFailed\nelement 0: 3, not 1\n[  FAILED  ] By/A.a/ring (1 ms)\n")
        self.assertEqual(self.judged(output, 1), (
            "failed", "By/A.a/ring: rank 1: tests/mpi/a.cpp:7: element 0: 2, not 1\ntests/mpi/a.cpp:7: element 0: 3, not 1"))

    def test_a_failure_then_a_crash_shows_the_failure(self):
        output = "[ RUN      ] A.a\n/t/tests/a.cpp:7: Failure\nWrong\n[  FAILED  ] A.a (1 ms)\n[ RUN      ] A.b\n"
        self.assertEqual(self.judged(output, None, 11), ("failed", "A.a: tests/a.cpp:7: Wrong"))

    def test_a_success_that_exits_with_an_error(self):
        output = "[ RUN      ] A.a\n[       OK ] A.a (0 ms)\n[==========] 1 test from 1 test suite ran. (0 ms total)\nleak of 3 bytes\n"
        status, message = self.judged(output, 1)
        self.assertEqual(status, "failed")
        self.assertIn("leak of 3 bytes", message)

    def test_long_messages_are_cut(self):
        output = "[ RUN      ] A.a\n" + "".join(f"line {i}\n" for i in range(100)) + "[  FAILED  ] A.a (1 ms)\n"
        lines = test_output.failure(output).splitlines()
        self.assertEqual((lines[0], lines[11], lines[12:]), ("A.a: line 0", "line 11", ["... (88 more lines)"]))


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Shown(unittest.TestCase):
    def test_only_on_a_terminal_and_only_as_long_as_it_lasts(self):
        for out, during, after in ((Terminal(), "sums", "sums\r\033[K"), (io.StringIO(), "", "")):
            with building.shown("sums", out):
                self.assertEqual(out.getvalue(), during)
            self.assertEqual(out.getvalue(), after)


class BuildErrors(unittest.TestCase):
    def test_the_first_error_of_any_tool(self):
        link = "/usr/bin/ld: a.o: in function `f()':\na.cpp:(.text+0x5): undefined reference to `g()'\ncollect2: error: ld returned 1\n"
        compiler = "In file included from a.cpp:1:\n/t/a.h:3:9: note: x\n/t/a.h:4:7: error: no 'b'\n/t/a.h:9:7: fatal error: no 'c'\n"
        device = "/t/k.cuh(12): error: identifier \"x\" is undefined\n"
        for output, expected in [(link, "a.cpp:(.text+0x5): undefined reference to `g()'"),
                                 (compiler + link, "/t/a.h:4:7: error: no 'b'"), (device + compiler, device.strip()),
                                 ("CMake Error at x:3\n" + compiler, "CMake Error at x:3"),
                                 ("1\n2\nKilled\n", "1\n2\nKilled"), ("", "the build failed without a message")]:
            self.assertEqual(building.first_error(output), expected)


class Commands(unittest.TestCase):
    def test_nothing_outlives_a_command(self):
        folder = temporary(self)
        script = "sleep 301 & echo $! >inside; sleep 302"
        ended = run(["/bin/sh", "-c", script], folder, {}, 1)
        self.assertEqual((ended.stopped, ended.exit_code), ("time", None))
        inside = int((folder / "inside").read_text())
        for _ in range(100):  # a killed process exists until its parent has read its status
            if not _runs(inside):
                return
            time.sleep(0.1)
        self.fail("a process of the session is left")

    def test_half_of_the_memory_is_for_a_process(self):
        script = ("import mmap, os\n"
                  "memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')\n"
                  "for part in (2, 3): mmap.mmap(-1, memory * part // 5, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close(); "
                  "print(part, flush=True)\n")
        ended = run([sys.executable, "-c", script], temporary(self), {}, 60)
        self.assertEqual((ended.exit_code, ended.output.split()[0]), (1, "2"))
        self.assertIn("Cannot allocate memory", ended.output)

    def test_a_flood_of_output_keeps_both_ends(self):
        ended = run(["/bin/sh", "-c", "echo first; yes | head -c 3000000; echo last"], temporary(self), {}, 60)
        self.assertEqual(ended.exit_code, 0)
        self.assertTrue(ended.output.startswith("first\n") and ended.output.endswith("last\n"))
        self.assertIn("bytes left out", ended.output)
        self.assertLess(len(ended.output), 500_000)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
