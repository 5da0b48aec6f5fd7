"""labs/prove: a sound lab is proved; each way in which a lab can be unsound is found."""

import re
import subprocess
import sys
import unittest

from small_tree import SOURCES, small_tree, temporary, without_git_settings


class Prove(unittest.TestCase):
    def setUp(self):
        self.root = small_tree(temporary(self))

    def prove(self, *words):
        ended = subprocess.run([sys.executable, self.root / "labs" / "prove", *words], capture_output=True, text=True, check=False,
                               env=without_git_settings(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        return ended.returncode, ended.stdout, ended.stderr

    def test_a_sound_lab(self):
        code, output, errors = self.prove("1", "--only", "i,ii,iii")
        self.assertEqual(code, 0, output + errors)
        self.assertRegex(output, r"\n1_sums +2 of 2 +3 of 3 +10 of 10 +3 of 3 +\d+\n\d+ s in all\n\Z")
        self.assertRegex(output, r"without 1.1 sum failed: sum_tests Sum.adds \(\d+ s\)")

    def test_unsound_labs(self):
        file = self.root / "src" / "sum file.h"
        file.write_text(file.read_text() + "\ninline int unused(int a) { return a + 1; }\n")
        tests = self.root / "src" / "sum_tests.cpp"
        tests.write_text(tests.read_text().replace('{"Sum.twice"', '{"Easy.passes", [] { return true; }}, '
                                                   '{"Hard.fails", [] { return false; }}, {"Sum.twice"'))
        lab = self.root / "labs" / "1_sums" / "lab"
        lab.write_text(SOURCES["labs/1_sums/lab"].replace("       Use sum().\n", "       Use sum().\n  cut  inline int unused(int a)\n")
                       + "check  4  sum_tests  Easy.*\ncheck  4  sum_tests  Hard.*\ncheck  1  sum_tests  Typo.*\n")
        code, output, errors = self.prove("1", "--only", "i,ii,iii")
        self.assertEqual((code, errors.count("lab: ")), (1, 0), output + errors)
        self.assertEqual(re.findall(r"^lab 1: (.*)", output, re.MULTILINE), [
            "passes on the starter: sum_tests Easy.*", "does not pass on the original: sum_tests Hard.*: failed, Hard.fails: "
            "src/tests.cpp:7: Failure", "does not pass on the original: sum_tests Typo.*: failed, sum_tests has no test Typo.*"])

    def test_a_function_that_no_check_needs_and_a_starter_that_does_not_build(self):
        file = self.root / "src" / "sum file.h"
        file.write_text(file.read_text() + "\ninline int unused(int a) { return a + 1; }\n"
                        "constexpr int size(int a) { return a; }\ninline int table[size(3)];\n")
        lab = self.root / "labs" / "1_sums" / "lab"
        cuts = "       Use sum().\n  cut  inline int unused(int a)\n  cut  constexpr int size(int a)\n"
        lab.write_text(SOURCES["labs/1_sums/lab"].replace("       Use sum().\n", cuts))
        code, output, errors = self.prove("1", "--only", "i,ii,iii")
        self.assertEqual(code, 1, output + errors)
        self.assertRegex(output, r"\nlab 1: the starter's sum_tests does not build: .*/src/sum file.h:\d+:\d+: error: ")
        self.assertIn("\nlab 1: no points are lost without 1.3 unused\n", output)
        self.assertRegex(output, r"\n1_sums +1 of 2 +3 of 3 +10 of 10 +4 of 5 ")

    def test_mistakes(self):
        self.assertEqual(self.prove("7"), (2, "", f"prove: there is no lab 7 in {self.root}/labs (there are: 1, 2)\n"))
        self.assertEqual(self.prove("--only", "v")[0], 2)
        code, _, errors = self.prove("1", "--only", "i", "--keep", str(self.root / "x"))
        self.assertEqual(code, 2)
        self.assertIn("variants cannot be built in a folder with white space in its name", errors)


if __name__ == "__main__":
    unittest.main()
