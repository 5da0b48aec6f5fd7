"""`lab submit`: what is packed, the same bytes for the same work, and work that cannot be packed."""

import hashlib
import json
import os
import tarfile
import time
import unittest

from small_tree import lab, small_tree, temporary

from kit import submission  # of ROOT, which small_tree adds to the path

FILES = ["answers.md", "src/loop.h", "src/sum file.h", "submission.json"]


class Submit(unittest.TestCase):
    def setUp(self):
        self.folder = temporary(self)
        self.target = self.folder / "work"
        self.tree = small_tree(self.folder)
        ended = lab(self.tree, "start", 1, "--dir", self.target, "--no-reference", "--student", "ada")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.archive = self.target / "submission.tar.gz"

    def packed(self, archive=None):
        with tarfile.open(archive or self.archive) as opened:
            return {entry.name: opened.extractfile(entry).read() for entry in opened}

    def write_all(self):
        (self.target / "src" / "sum file.h").write_text("inline int sum(int a, int b) { return b + a; }\n"
                                                        "inline int twice(int a) { return 2 * a; }\n")
        (self.target / "src" / "loop.h").write_text("inline int loop(int n) { return n; }\n")

    def test_what_is_packed(self):
        self.write_all()
        ended = lab(self.target, "submit")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertRegex(ended.stdout, r"\A.*/submission.tar.gz: lab 1, by ada\n( +\d+ bytes  [\w/. ]+\n){3}\Z")
        files = self.packed()
        self.assertEqual(sorted(files), FILES)
        manifest = json.loads(files["submission.json"])
        self.assertEqual((manifest["lab"], manifest["student"], manifest["unchanged"]), (1, "ada", []))
        self.assertEqual(manifest["sha256"], {name: hashlib.sha256(files[name]).hexdigest() for name in FILES[:3]})
        self.assertEqual(files["src/loop.h"], (self.target / "src" / "loop.h").read_bytes())

    def test_a_submission_has_a_student(self):
        """Without an id nobody would know whose work it is: all archives have the same name."""
        nobodys = self.folder / "nobody's"
        self.assertEqual(lab(self.tree, "start", 1, "--dir", nobodys, "--no-reference").returncode, 0)
        ended = lab(nobodys, "submit")
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertRegex(ended.stderr, r"\Alab: whose work is this\? `./lab submit --student ID`.*\n\Z")
        self.assertFalse((nobodys / "submission.tar.gz").exists())
        ended = lab(nobodys, "submit", "--student", "grace.hopper@navy.mil,ada")
        self.assertRegex(ended.stdout, r"\A.*: lab 1, by grace\.hopper@navy\.mil,ada\n")
        manifest = json.loads(self.packed(nobodys / "submission.tar.gz")["submission.json"])
        self.assertEqual(manifest["student"], "grace.hopper@navy.mil,ada")
        for wrong in ("", " ", "a b", "=1+1", "../ada", "a,", "a,b,c", "a" * 65, "ada\n"):
            self.assertFalse(submission.is_student_id(wrong), wrong)
        for folder, *words in ((self.target, "submit"), (self.tree, "start", 1, "--dir", self.folder / "other", "--no-reference")):
            ended = lab(folder, *words, "--student=")
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("is no id: a letter or digit", ended.stderr)
        self.assertFalse((self.folder / "other").exists())

    def test_the_same_work_gives_the_same_bytes(self):
        lab(self.target, "submit")
        first = self.archive.read_bytes()
        time.sleep(1.1)  # a second on the clock of archives
        os.utime(self.target / "answers.md")
        lab(self.target, "submit", "--output", self.folder / "again.tar.gz")
        self.assertEqual((self.folder / "again.tar.gz").read_bytes(), first)
        (self.target / "answers.md").write_text("Because.\n")
        lab(self.target, "submit")
        self.assertNotEqual(self.archive.read_bytes(), first)

    def test_what_is_not_written_yet_is_a_warning(self):
        ended = lab(self.target, "submit")
        self.assertEqual(ended.returncode, 0)
        self.assertIn("warning: not written yet: 1.1 sum, 1.2 twice, 1.3 loop\n", ended.stdout)
        self.assertEqual(json.loads(self.packed()["submission.json"])["unchanged"], ["1.1 sum", "1.2 twice", "1.3 loop"])
        self.write_all()
        loop = self.target / "src" / "loop.h"
        loop.write_text('inline int loop(long n) { lab::todo("1.3 loop"); }\n')  # another signature
        (self.target / "answers.md").unlink()
        ended = lab(self.target, "submit")
        self.assertIn("warning: there is no answers.md\nwarning: not written yet: 1.3 loop\n", ended.stdout)

    def test_work_that_does_not_even_parse_is_packed(self):
        self.write_all()
        (self.target / "src" / "loop.h").write_bytes(b"inline int loop(int n) { return n; \xff\n")
        self.assertEqual(lab(self.target, "submit").returncode, 0)
        self.assertEqual(self.packed()["src/loop.h"], b"inline int loop(int n) { return n; \xff\n")

    def test_work_that_is_refused(self):
        def refused(pattern):
            ended = lab(self.target, "submit")
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertRegex(ended.stderr, rf"\Alab: {pattern}.*\n\Z")
            self.assertFalse(self.archive.exists())
        loop = self.target / "src" / "loop.h"
        loop.unlink()
        refused(".*: there is no file src/loop.h")
        (self.folder / "outside").write_text("")
        loop.symlink_to(self.folder / "outside")
        refused("src/loop.h is no file of this folder")
        loop.unlink()
        loop.mkdir()
        refused(".*: there is no file src/loop.h")
        loop.rmdir()
        loop.write_bytes(b"/" * ((1 << 20) + 1))
        refused("src/loop.h has 1048577 bytes; a submission's files have at most 1048576")

    def test_an_archive_that_cannot_be_written(self):
        ended = lab(self.target, "submit", "--output", self.folder / "no" / "x.tar.gz")
        self.assertEqual(ended.returncode, 2)
        self.assertRegex(ended.stderr, r"\Alab: .*/no/x.tar.gz.part: No such file or directory\n\Z")


if __name__ == "__main__":
    unittest.main()
