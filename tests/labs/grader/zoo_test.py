"""`lab zoo check DIR --work WORK`: fixes that mend, hang, print and look around, of a small tree in place of the product."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "labs"), str(Path(__file__).resolve().parent)]

import fake_tree  # noqa: E402
from kit import zoo, zoo_draw, zoo_tree  # noqa: E402

PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",
 "binaryDir": "${sourceDir}/build/${presetName}", "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}]}
"""
BUG = """number   1
title    The first value is left out
lab      4
symptom  Sums are too small.
caught   ring_tests Ring.sums
says     is wrong
also     Ring.is_empty
source   nowhere
record   train --seed 1

file     stage1/ring.cpp
find
    for (int i = 0; i < count; ++i)
put
    for (int i = 1; i < count; ++i)
"""
DECOY = """file stage1/ring.cpp
find
    int sum = 0;
put
    int sum{0};
"""
WRONG, RIGHT = "for (int i = 1; i < count; ++i)", "for (int i = 0; i < count; ++i)"


class ZooCheckTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.top = Path(tempfile.mkdtemp(prefix="zoo-check-test-"))
        cls.top.chmod(0o755)
        cls.addClassCleanup(shutil.rmtree, cls.top)
        cls.root, cls.folder, cls.work = cls.top / "root", cls.top / "in" / "a bug", cls.top / "work"
        fake_tree.make(cls.root)
        (cls.root / "CMakePresets.json").write_text(PRESETS)
        (cls.root / "labs/zoo/decoys").mkdir(parents=True)
        (cls.root / "labs/zoo/first_left_out").write_text(BUG)
        (cls.root / "labs/zoo/decoys/stage1").write_text(DECOY)
        zoo.start(cls.root, zoo_draw.of_number(cls.root, "1"), cls.folder)
        cls.given = (cls.folder / "stage1/ring.cpp").read_text()

    def check(self, fix: str, seconds: float = 60, above: str = "") -> tuple[bool, str]:
        """Puts `fix` in place of the wrong line, and `above` before all others, and checks the folder."""
        (self.folder / "stage1/ring.cpp").write_text(above + self.given.replace(WRONG, fix))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), \
                mock.patch.object(zoo_tree.Copy, "TEST_SECONDS", seconds):
            mended = zoo.check_fix(self.root, self.folder, self.work)
        return mended, out.getvalue()

    def test_a_fix(self) -> None:
        mended, said = self.check(RIGHT)
        self.assertTrue(mended, said)
        self.assertIn("int sum{0};", self.given)
        self.assertIn("1 of 5 lines are changed", said)  # the decoy is none of them
        self.assertIn("tests that were right before: passed", said)
        mended, said = self.check("for (int i = 2; i < count; ++i)")
        self.assertFalse(mended)
        self.assertIn("the test that finds the bug: failed", said)

    def test_nothing_of_the_folder_is_executed(self) -> None:
        """Not its build, which a student may have made to say anything."""
        build = self.folder / "build/release"
        (build / "bin").mkdir(parents=True)
        self.addCleanup(shutil.rmtree, self.folder / "build")
        (build / "CMakeCache.txt").write_text("")
        (build / "build.ninja").write_text(f"rule x\n command = touch {self.top}/executed\nbuild ring_tests: x\n")
        (build / "bin/ring_tests").write_text(f"#!/bin/sh\ntouch {self.top}/executed\n"
                                              "echo '[==========] 1 test from 1 test suite ran.'\n")
        (build / "bin/ring_tests").chmod(0o755)
        (self.folder / "CMakeUserPresets.json").write_text("{")
        self.addCleanup((self.folder / "CMakeUserPresets.json").unlink)
        self.assertFalse(self.check("for (int i = 3; i < count; ++i)")[0])
        self.assertFalse((self.top / "executed").exists())

    def test_limits(self) -> None:
        for fix, message in ((f"for (;;) {{}} {RIGHT}", "hung"),
                             (f'for (;;) __builtin_puts("a long line of output"); {RIGHT}', "ended by its limit: output")):
            with self.subTest(message):
                mended, said = self.check(fix, seconds=2 if message == "hung" else 60)
                self.assertFalse(mended)
                self.assertIn(message, said)

    def test_a_build_that_does_not_succeed(self) -> None:
        mended, said = self.check(f"summ(); {RIGHT}")
        self.assertFalse(mended)
        self.assertIn("stage1/ring.cpp:5:", said)

    @unittest.skipUnless(os.geteuid() == 0, "another user id needs root")
    def test_another_user(self) -> None:
        mended, said = self.check("if (geteuid() < 60000) return -1; " + RIGHT, above='extern "C" unsigned geteuid();\n')
        self.assertTrue(mended, said)


if __name__ == "__main__":
    unittest.main()
