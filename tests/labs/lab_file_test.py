"""Lab files: what is read, and that each mistake is named with its line."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit.lab_file import Check, Count, LabError, Time, Trace, all_labs, load, numbered, public_text  # noqa: E402

GOOD = """# A comment.
title  A ring, and what backward can hide

give   stage1/ring.h
give   stage1/a file.h
write  stage1/ring.cpp
  cut  Tensor Ring::sent(std::int64_t item) const
       The slice this rank sends.

         # is a comment here, too
       The rule opens ring.h.
  cut  Tensor& Ring::operator[](int i)
write  stage1/sync.h
  cut  void finish() override
       Starts the rest.
check  8   ring_tests@1-4  *sums_in_place*
hint   A hang at 3 ranks, not 2: who waits before sending?
  hint   And then?
check  2   unit_tests  Buckets.*:Ranges.*
check  1   ring_tests@3  Ring.*
count  6   bytes <= 1.25 of stage1_bench -np 3 -- --comm overlapped
count  1   launches <= 1 of stage2_bench
trace  12  stage1 -np 3 -- --comm overlapped --steps 4
trace  3   stage0
time   6   stage1_bench --comm overlapped   0.5..0.9
bugs   10  norm_of_one_slice   grid_rounded_down
"""


class LabFile(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        (self.root / "stage1").mkdir()
        for name in ("ring.h", "a file.h", "ring.cpp", "sync.h"):
            (self.root / "stage1" / name).write_text("")
        self.directory = self.root / "labs" / "4_ranks"
        self.directory.mkdir(parents=True)

    def read(self, text):
        (self.directory / "lab").write_text(text)
        return load(self.directory)

    def test_all_that_a_file_can_say(self):
        lab = self.read(GOOD)
        self.assertEqual((lab.number, lab.name, lab.title, lab.root),
                         (4, "4_ranks", "A ring, and what backward can hide", self.root))
        self.assertEqual(lab.give, ["stage1/ring.h", "stage1/a file.h"])
        self.assertEqual([(w.path, w.line, [(c.label, c.signature, c.hint, c.line) for c in w.cuts]) for w in lab.write], [
            ("stage1/ring.cpp", 6, [
                ("4.1 Ring::sent", "Tensor Ring::sent(std::int64_t item) const",
                 "The slice this rank sends.\nThe rule opens ring.h.", 7),
                ("4.2 Ring::operator[]", "Tensor& Ring::operator[](int i)", "", 12)]),
            ("stage1/sync.h", 13, [("4.3 finish", "void finish() override", "Starts the rest.", 14)])])
        self.assertEqual(lab.checks, [
            Check(8, "ring_tests", [1, 2, 3, 4], "*sums_in_place*",
                  "A hang at 3 ranks, not 2: who waits before sending?\nAnd then?", 16),
            Check(2, "unit_tests", [], "Buckets.*:Ranges.*", "", 19), Check(1, "ring_tests", [3], "Ring.*", "", 20)])
        self.assertEqual(lab.measures, [
            Count(6, "bytes", 1.25, ["stage1_bench", "-np", "3", "--", "--comm", "overlapped"], 21),
            Count(1, "launches", 1.0, ["stage2_bench"], 22),
            Trace(12, "stage1", 3, ["--comm", "overlapped", "--steps", "4"], 23),
            Trace(3, "stage0", None, [], 24),
            Time(6, "stage1_bench", ["--comm", "overlapped"], 0.5, 0.9, 25)])
        self.assertEqual((lab.bug_points, lab.bugs), (10, ["norm_of_one_slice", "grid_rounded_down"]))
        self.assertEqual(lab.targets(), ["ring_tests", "unit_tests"])

    def test_mistakes_name_file_and_line(self):
        for line, replacement, number, message in [
                ("title  A ring", "titel  A ring", 2, "'titel' is no keyword"),
                ("title  A ring, and what backward can hide", "title", 2, "nothing follows 'title'"),
                ("give   stage1/ring.h", "title  Two", 4, "one title"),
                ("stage1/ring.h", "stage1/ring.hpp", 4, "there is no file stage1/ring.hpp"),
                ("stage1/ring.h", "/etc/passwd", 4, "no plain path"),
                ("stage1/ring.h", "../x", 4, "no plain path"),
                ("stage1/ring.h", "stage1//ring.h", 4, "no plain path"),
                ("stage1/sync.h", "stage1/ring.cpp", 13, "named twice"),
                ("stage1/a file.h", "stage1/ring.h", 5, "named twice"),
                ("write  stage1/ring.cpp", "write  stage1/ring.h", 6, "named twice"),
                ("give   stage1/ring.h", "  cut  void f()", 4, "follows a line 'write'"),
                ("give   stage1/ring.h", "hint   Early", 4, "follows a line 'check'"),
                ("void finish() override", "finish", 14, "is no signature"),
                ("Tensor& Ring::operator[](int i)", "Tensor Ring::sent(std::int64_t item) const", 12, "is cut twice"),
                ("check  8 ", "check  0 ", 16, "'0' is no number of points"),
                ("check  8 ", "check  -8 ", 16, "'-8' is no number of points"),
                ("check  8 ", "check  8.5 ", 16, "'8.5' is no number of points"),
                ("@1-4", "@4-1", 16, "'4-1' is no number of ranks"),
                ("@1-4", "@", 16, "'' is no number of ranks"),
                ("@1-4", "@1-1000", 16, "'1-1000' is no number of ranks"),
                ("ring_tests@1-4", "../ring", 16, "is no name of a test program"),
                ("  *sums_in_place*", "", 16, "expected: check POINTS"),
                ("bytes <= 1.25", "bytes < 1.25", 21, "expected: count POINTS"),
                ("launches <= 1 of stage2_bench", "launches <= 1", 22, "expected: count POINTS"),
                ("bytes <= 1.25", "bytes <= nan", 21, "'nan' is no positive number"),
                ("trace  3   stage0", "trace  3   stage0 --np 2", 24, "expected: trace POINTS"),
                ("stage1 -np 3", "stage1 -np 0", 23, "'0' is no number of ranks"),
                ("0.5..0.9", "0.9", 25, "expected: time POINTS"),
                ("0.5..0.9", "0.9..0.5", 25, "the floor 0.9 is not below the target 0.5"),
                ("10  norm_of_one_slice   grid_rounded_down", "10", 26, "expected once: bugs POINTS NAME"),
                ("title  A ring, and what backward can hide", "", 26, "no line 'title'")]:
            with self.subTest(replacement=replacement):
                self.assertIn(line, GOOD)
                with self.assertRaises(LabError) as raised:
                    self.read(GOOD.replace(line, replacement, 1))
                text = str(raised.exception)
                self.assertTrue(text.startswith(f"{self.directory}/lab:{number}: "), text)
                self.assertIn(message, text)
                self.assertNotIn("\n", text)

    def test_a_file_that_is_not_there_or_no_text(self):
        with self.assertRaisesRegex(LabError, "No such file"):
            load(self.directory)
        (self.directory / "lab").write_bytes(b"title \xff\n")
        with self.assertRaisesRegex(LabError, "lab: .*utf-8"):
            load(self.directory)
        with self.assertRaisesRegex(LabError, "NUMBER_NAME"):
            load(self.root / "labs")

    def test_labs_are_found_by_number(self):
        (self.directory / "lab").write_text(GOOD)
        tenth = self.root / "labs" / "10_more"
        tenth.mkdir()
        (tenth / "lab").write_text(GOOD)
        self.assertEqual([lab.number for lab in all_labs(self.root)], [4, 10])
        self.assertEqual(numbered(self.root, 10).name, "10_more")
        with self.assertRaisesRegex(LabError, r"there is no lab 5 .*there are: 4, 10"):
            numbered(self.root, 5)
        (self.root / "labs" / "4_again").mkdir()
        (self.root / "labs" / "4_again" / "lab").write_text(GOOD)
        with self.assertRaisesRegex(LabError, "several labs 4"):
            all_labs(self.root)

    def test_students_do_not_see_the_traces_and_the_bugs(self):
        lab = self.read(public_text(GOOD))
        self.assertEqual([type(measure) for measure in lab.measures], [Count, Count, Time])
        self.assertEqual((lab.bugs, lab.bug_points, len(lab.checks)), ([], 0, 3))


if __name__ == "__main__":
    unittest.main()
