"""`lab report`: the reference is built once, from the tree that the lab was made from, and compare_stages gets both."""

import io
import unittest
from unittest import mock

from small_tree import ROOT, lab, small_tree, temporary

from kit import building, lab_file, report  # noqa: E402


class Arguments(unittest.TestCase):
    def test_ranks_divide_the_batch(self):
        for one in lab_file.all_labs(ROOT):
            words = report.arguments(one)
            given = dict(zip(words, words[1:]))
            ranks, batch = int(given.get("--ranks", 1)), int(given.get("--batch-size", 8))  # 8: of compare_stages
            with self.subTest(lab=one.number, ranks=ranks, batch=batch):
                self.assertEqual(batch % ranks, 0)
                self.assertEqual(batch % 8, 0, "a reproducible run divides its batch into 8")


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = temporary(self)
        self.root = small_tree(self.folder)
        self.target, self.cache = self.folder / "work", self.folder / "the cache"

    def lab(self, directory, *words):
        return lab(directory, *words, STAGEGPT_LABS_CACHE=str(self.cache))

    def references(self):
        return sorted(self.cache.glob("*/build/bin/stage1_train"))

    def test_student_beside_reference(self):
        ended = self.lab(self.root, "start", 1, "--dir", self.target, "--student", "ada")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("Building the reference", ended.stdout)
        self.assertEqual(len(self.references()), 1)
        self.assertFalse((self.references()[0].parent / "sum_tests").exists(), "tests are no part of the reference")
        time_of_reference = self.references()[0].stat().st_mtime_ns
        (self.target / "src" / "loop.h").write_text("inline int loop(int n) { return 10 * n; }\n")
        self.root.rename(self.folder / "moved")  # its source is not needed again
        ended = self.lab(self.target, "report", "--repeats", 5, "--", "--lr", "0.1")
        self.assertEqual((ended.returncode, ended.stdout), (3, (  # compare_stages' own exit code
            "--output|report||--title|Lab 1|--author|ada|--stages|1|--ranks|2|--repeats|5|--|--steps|20|--lr|0.1|\n"
            "loop 40\nloop 4\n").replace("||", "|--against|")))
        self.assertEqual(self.references()[0].stat().st_mtime_ns, time_of_reference, "the reference was built again")

    def test_the_build_of_the_tree_is_the_reference(self):
        """If it is up to date. Else what is built is announced."""
        build = building.configure(self.root)
        self.assertEqual(building.build(build, ["stage1_train"]), {"stage1_train": ""})
        self.assertEqual(self.lab(self.root, "start", 1, "--dir", self.target).returncode, 0)
        self.assertEqual(self.references(), [])
        (self.root / "src" / "loop.h").write_text((self.root / "src" / "loop.h").read_text() + "// changed\n")
        self.assertGreater(building.steps(build, ["stage1_train"]), 0)
        said = io.StringIO()
        with mock.patch.object(building, "_FEW_STEPS", 0):
            building.announce(build, ["stage1_train"], said)
        self.assertRegex(said.getvalue(), r"^stage1_train: \d+ steps to build, about 1 minute on \d+ processors\n$")

    def test_what_cannot_be_compared(self):
        ended = self.lab(self.root, "start", 1, "--dir", self.target, "--no-reference")
        self.assertEqual((ended.returncode, self.references()), (0, []))
        (self.target / "src" / "loop.h").write_text("inline int loop(int n) { return 10 * n; }\n")

        def refused(pattern, *words):
            ended = self.lab(self.target, "report", *words)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertRegex(ended.stderr.splitlines()[-1], rf"\Alab: {pattern}")
        (self.target / "report").mkdir()
        refused("report exists already; --output names another folder")
        (self.target / "report").rmdir()
        text = (self.root / "src" / "loop.h").read_text()
        (self.root / "src" / "loop.h").write_text(text + "// changed\n")
        refused(".* has changed since this folder was made; --reference names a build of the reference")
        self.root.rename(self.folder / "moved")
        refused("the reference has not been built, and its source .* is not there; --reference names a build")
        (self.folder / "moved").rename(self.root)
        (self.root / "src" / "loop.h").write_text(text)
        (self.target / "src" / "loop.h").write_text("inline int loop(int n) { return m; }\n")
        refused(r"stage1_train does not build: /.*/src/loop.h:1:33: error: .m. was not declared")
        self.assertEqual(self.references(), [])


if __name__ == "__main__":
    unittest.main()
