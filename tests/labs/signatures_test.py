"""The signatures of all labs, in the files of this tree: each names one function, and what is cut can be restored and
is told nowhere else."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit import cutter, starter, tree  # noqa: E402
from kit.lab_file import all_labs  # noqa: E402


class Signatures(unittest.TestCase):
    def test_all_lab_files_are_read(self):
        self.assertEqual([lab.number for lab in all_labs(ROOT)], list(range(8)))

    def test_restored_files_are_those_of_the_tree_byte_for_byte(self):
        for lab in all_labs(ROOT):
            for written in lab.write:
                with self.subTest(lab=lab.name, file=written.path):
                    text = (ROOT / written.path).read_bytes().decode()
                    work = cutter.cut(text, written.cuts, written.path)
                    self.assertEqual(work.count("lab::todo("), len(written.cuts))
                    for i, cut in enumerate(written.cuts):
                        self.assertTrue(cutter.is_cut(work, cut), cut.label)
                        alone = cutter.cut(text, [cut], written.path)
                        self.assertEqual(cutter.restore(alone, text, cut, written.path), text, cut.label)
                        work = cutter.restore(work, text, cut, written.path)
                        self.assertEqual(work.count("lab::todo("), len(written.cuts) - i - 1)
                    self.assertEqual(work, text)

    def test_each_cut_removes_something_and_has_a_hint(self):
        for lab in all_labs(ROOT):
            for written in lab.write:
                text = (ROOT / written.path).read_text()
                for cut in written.cuts:
                    with self.subTest(cut=cut.label):
                        found = cutter.find(text, cut.signature, written.path)
                        self.assertTrue(text[found.body_begin + 1:found.body_end - 1].strip(), "an empty body")
                        self.assertTrue(cut.hint, "no hint")

    def test_a_labs_points_are_a_hundred_less_the_report(self):
        for lab in all_labs(ROOT):
            points = sum(one.points for one in lab.checks + lab.measures) + lab.bug_points
            self.assertEqual(points, 90, lab.name)

    def test_no_starter_holds_the_body_of_a_function_that_is_cut(self):
        """The body of a function that is cut, without white space, is in no file of its lab's starter."""
        squeezed = {path: b"".join((ROOT / path).read_bytes().split()) for path in tree.files(ROOT)
                    if (ROOT / path).is_file() and (ROOT / path).stat().st_size < 1 << 20}
        for lab in all_labs(ROOT):
            cut_files = {path: "".join(text.split()).encode() for path, text in starter.students_files(lab).items()}
            held = {**{path: content for path, content in squeezed.items() if starter.placed(lab, path) is not None
                       and not path.startswith(starter.HIDDEN_TESTS)}, **cut_files}
            self.assertGreater(len(held), 500)
            for written in lab.write:
                text = (ROOT / written.path).read_text()
                for cut in written.cuts:
                    found = cutter.find(text, cut.signature)
                    body = "".join(text[found.body_begin + 1:found.body_end - 1].split()).encode()
                    if len(body) < 60:  # such as `return place_.rank;`, which others may have too
                        continue
                    self.assertIn(body, squeezed[written.path])
                    self.assertEqual([path for path, content in held.items() if body in content], [], cut.label)


if __name__ == "__main__":
    unittest.main()
