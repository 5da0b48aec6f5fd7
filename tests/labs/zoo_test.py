"""The bug zoo: its files fit the tree, its verbs do what they say. Nothing is built."""

import argparse
import collections
import difflib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit import curve, cutter, lab_file, starter, tree, zoo, zoo_curves, zoo_draw, zoo_file, zoo_prove, zoo_tree  # noqa: E402
from kit.commands import Ended  # noqa: E402
from kit.lab_file import LabError  # noqa: E402
from kit.zoo_draw import drawn  # noqa: E402
from kit.zoo_file import BUDGET, all_bugs, applied, changed_lines, decoys, named  # noqa: E402

GOOD = """# A comment.
number   7
title    A mistake
lab      1 4
symptom  Something is seen.
caught   some_tests@2 Suite.*
says     row \\d+
also     Other.*
source   somebody/something, issue 1
record   NAME=late some_program@3 --flag 2
record   other_program --resume

file     a.txt
find
    one
      two

    three
put
    four
file     b.txt
find
    x
put
"""


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "a_bug"

    def load(self, text):
        self.path.write_text(text)
        return zoo_file.load(self.path)

    def test_are_parsed(self):
        bug = self.load(GOOD)
        self.assertEqual((bug.name, bug.number, bug.labs, bug.also), ("a_bug", 7, [1, 4], "Other.*"))
        self.assertEqual((bug.caught.target, bug.caught.ranks, bug.caught.filter), ("some_tests", 2, "Suite.*"))
        self.assertEqual([edit.find for edit in bug.edits], ["one\n  two\n\nthree", "x"])
        self.assertEqual([edit.put for edit in bug.edits], ["four", ""])
        self.assertEqual([edit.file for edit in bug.edits], ["a.txt", "b.txt"])
        self.assertEqual(bug.record[0].text(), "NAME=late mpirun -np 3 some_program --flag 2")
        self.assertEqual(bug.record[1].flags, ["--resume"])

    def test_errors_name_the_line(self):
        for old, new, message in [
                ("number   7", "number   seven", "2: 'seven' is no number"),
                ("number   7", "number   0", "2: '0' is no number"),
                ("title    A mistake", "titel    A mistake", "3: 'titel' is no keyword"),
                ("title    A mistake", "title", "3: nothing follows 'title'"),
                ("title    A mistake\n", "", "there is no line 'title'"),
                ("title    A mistake", "title    A\ntitle    B", "4: there are two lines 'title'"),
                ("lab      1 4", "lab      one", "4: expected numbers of labs, not 'one'"),
                ("@2 Suite.*", "@2", "6: expected: caught TARGET[@RANKS] FILTER"),
                ("some_tests@2", "some_tests@0", "6: 'some_tests@0' is no program"),
                ("row \\d+", "row (", "7: 'row (' is no regular expression"),
                ("NAME=late some_program@3 --flag 2", "NAME=late", "10: expected: record"),
                ("record   NAME=late some_program@3 --flag 2\nrecord   other_program --resume\n", "", "'record'"),
                ("file     a.txt\n", "", "'find' follows a line 'file'"),
                ("file     a.txt", "file     ../a.txt", "13: '../a.txt' is no plain path"),
                ("file     a.txt", "file     /a.txt", "13: '/a.txt' is no plain path"),
                ("find\n    one", "find one", "14: the text of 'find' begins on the next line"),
                ("put\n    four\n", "", "expected 'put', not 'file'"),
                ("put\n    four", "find\n    four", "expected 'put', not 'find'"),
                ("    x\nput\n", "    x\n", "'find' without 'put'"),
                ("file     a.txt", "variant\nfile     a.txt", "13: 'variant' follows changes"),
                ("    x\nput\n", "    x\nput\n\nvariant\n", "there is no line 'put'"),
                ("    x\nput\n", "    x\nput\n    x\n", "the text that is put is the one that is found"),
                ("find\n    x\n", "find\n", "there is no text to be found"),
                ("find\n    one\n      two\n\n    three\nput\n    four\nfile     b.txt\nfind\n    x\nput\n", "",
                 "there is no line 'put'")]:
            with self.subTest(message=message):
                self.assertIn(old, GOOD)
                with self.assertRaises(LabError) as caught:
                    self.load(GOOD.replace(old, new))
                self.assertIn(message, str(caught.exception))
                self.assertTrue(str(caught.exception).startswith(str(self.path) + ":"), caught.exception)

    def test_have_variants_of_the_same_file(self):
        bug = self.load(GOOD + "\nvariant\nfind\n    y\nput\n    z\n")
        self.assertEqual([[edit.put for edit in form.edits] for form in bug.forms()], [["four", ""], ["z"]])
        self.assertEqual(bug.forms()[1].files(), ["b.txt"])

    def test_a_text_is_found_exactly_once(self):
        folder = Path(self.folder.name)
        bug = self.load(GOOD)
        (folder / "a.txt").write_text("zero one\n  two\n\nthree five\n")
        for text, times in (("no", 0), ("x and x", 2)):
            (folder / "b.txt").write_text(text)
            with self.assertRaisesRegex(LabError, rf"a_bug:22: the text to be found occurs {times} times in b.txt"):
                applied(folder, bug.edits)
        (folder / "b.txt").write_text("an x")
        self.assertEqual(applied(folder, bug.edits), {"a.txt": "zero four five\n", "b.txt": "an "})
        (folder / "b.txt").unlink()
        with self.assertRaisesRegex(LabError, "b.txt"):
            applied(folder, bug.edits)

    def test_of_decoys_have_changes_only(self):
        file = Path(self.folder.name) / "labs/zoo/decoys/some"
        file.parent.mkdir(parents=True)
        file.write_text(GOOD[GOOD.index("file "):])
        self.assertEqual([edit.put for edit in decoys(Path(self.folder.name))], ["four", ""])
        for keyword, line in (("number", "number 7\n"), ("record", "record program\n"), ("variant", "variant\n")):
            changes = GOOD[GOOD.index("file "):]
            file.write_text(changes + line + changes if keyword == "variant" else line + changes)
            with self.assertRaisesRegex(LabError, f"decoys/some: decoys have no line '{keyword}'"):
                decoys(Path(self.folder.name))


class Bugs(unittest.TestCase):
    bugs = all_bugs(ROOT)
    forms = [form for bug in bugs for form in bug.forms()]

    def test_fit_the_tree(self):
        for bug in self.forms:
            with self.subTest(bug=bug.name, variant=bug.variant):
                texts = applied(ROOT, bug.edits)
                lines = sum(changed_lines(text, (ROOT / file).read_text()) for file, text in texts.items())
                self.assertTrue(1 <= lines <= BUDGET, lines)
                for file in texts:
                    self.assertRegex(file, r"^(common|stage\d_\w+)/")

    @unittest.skipUnless(shutil.which("clang-format") and "version 14" in subprocess.run(
        ["clang-format", "--version"], capture_output=True, text=True, check=False).stdout, "there is no clang-format 14")
    def test_are_not_found_by_the_formatter(self):
        """Nor are decoys."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / ".clang-format", folder)
            for edits in [decoys(ROOT), *(form.edits for form in self.forms)]:
                for file, text in applied(ROOT, edits).items():
                    Path(folder, Path(edits[0].where).name.replace(":", "_") + "_" + Path(file).name + ".cpp").write_text(text)
            ended = subprocess.run(f"clang-format --dry-run --sort-includes=0 {folder}/*.cpp", shell=True, capture_output=True, text=True, check=True)
        self.assertEqual(ended.stderr, "")

    def test_are_shared_by_as_few_students_as_the_guide_says(self):
        """Of a lab's bugs, drawn evenly, and the variants of each: the probability that two students have the same text."""
        table = dict(re.findall(r"^\| (\d) \|.*\| (\d+) % \|$", (ROOT / "labs/zoo/README.md").read_text(), re.MULTILINE))
        for lab in range(8):
            pool = [len(bug.variants) for bug in self.bugs if lab in bug.labs]
            share = sum(1 / variants for variants in pool) / len(pool) ** 2
            self.assertEqual(table[str(lab)], str(round(100 * share)), f"lab {lab}: {len(pool)} bugs, {sum(pool)} variants")
            with mock.patch.object(zoo_draw, "all_bugs", return_value=self.bugs):
                draws = [zoo_draw.of_student(ROOT, lab, f"student{i}").bug for i in range(200)]
            counts = collections.Counter((bug.name, bug.variant) for bug in draws).values()
            pairs = sum(count * (count - 1) for count in counts) / (200 * 199)
            self.assertTrue(0.8 * share < pairs < 1.25 * share, (lab, share, pairs))

    def test_are_those_that_the_labs_draw(self):
        self.assertGreaterEqual(len(self.bugs), 20)
        for lab in range(8):
            (file,) = ROOT.glob(f"labs/{lab}_*/lab")
            (line,) = re.findall(r"^bugs +\d+ +(.+)$", file.read_text(), re.MULTILINE)
            self.assertEqual(sorted(line.split()), sorted(bug.name for bug in self.bugs if lab in bug.labs), file)

    def test_name_tests_and_flags_that_exist(self):
        cmake = "".join(file.read_text() for file in (ROOT / "tests").rglob("CMakeLists.txt"))
        flags = (ROOT / "docs/command_line.md").read_text()
        for bug in self.bugs:
            self.assertRegex(cmake, rf"_tests\({bug.caught.target}\b", bug.name)
            for command in bug.record:
                for flag in filter(lambda word: word.startswith("--"), command.flags):
                    self.assertIn(f"`{flag}", flags, bug.name)

    def test_have_curves_of_their_commands(self):
        files = {file.stem: file for file in (ROOT / "labs/zoo/curves").glob("*.json")}
        self.assertEqual(sorted(files), sorted(bug.name for bug in self.bugs))
        for bug in self.forms:
            data = json.loads(files[bug.name].read_text())
            self.assertEqual(len(data["runs"]), 1 + len(bug.variants), bug.name)
            healthy, buggy = data["runs"]["healthy"], data["runs"][zoo_curves.key_of(bug)]
            self.assertEqual(data["record"], [command.text() for command in bug.record], bug.name)
            self.assertEqual(healthy["end"], "", bug.name)
            self.assertTrue(healthy["values"]["loss"], bug.name)
            self.assertNotEqual(healthy, buggy, f"{bug.name}: its curves show no symptom")

    def test_are_found_by_number_and_name(self):
        self.assertEqual(named(ROOT, "1").name, named(ROOT, "no_causal_mask").name)
        with self.assertRaisesRegex(LabError, "there is no bug 'unicorn'"):
            named(ROOT, "unicorn")


@functools.cache
def hunks(before, after):
    """The stretches of lines that differ, as `diff` counts them."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(tag != "equal" for tag, *_ in matcher.get_opcodes())


class Decoys(unittest.TestCase):
    decoys = decoys(ROOT)
    texts = {edit.file: (ROOT / edit.file).read_text() for edit in decoys}

    def test_fit_the_tree(self):
        """Each is found once and short, none touches what a lab cuts, and all together are as many hunks as there are decoys."""
        for lab in lab_file.all_labs(ROOT):
            for written in lab.write:
                cut = cutter.cut((ROOT / written.path).read_text(), written.cuts, written.path)
                for decoy in self.decoys:
                    self.assertTrue(decoy.file != written.path or decoy.find in cut, f"{decoy.where}: lab {lab.number} cuts this")
        for decoy in self.decoys:
            self.assertRegex(decoy.file, r"^(common|stage\d_\w+)/")
            self.assertLessEqual(changed_lines(decoy.find, decoy.put), 3, decoy.where)
        for file, text in applied(ROOT, self.decoys).items():
            number = sum(decoy.file == file for decoy in self.decoys)
            self.assertLessEqual(number, 4, file)  # so that 30 of them are in eight files
            self.assertGreaterEqual(hunks(self.texts[file], text), number, file)

    def test_do_not_overlap_a_bug(self):
        for bug in Bugs.forms:
            self.assertEqual(applied(ROOT, [*bug.edits, *self.decoys]), applied(ROOT, [*self.decoys, *bug.edits]), bug.name)

    def test_are_all_in_a_tree_that_is_proven(self):
        bug = named(ROOT, "no_causal_mask")
        with mock.patch.object(zoo_tree, "write") as write:
            zoo_tree.Copy(ROOT, Path("a copy")).plant(bug)
        self.assertEqual(write.call_args.args[2], [*bug.edits, *self.decoys])

    def test_hide_each_bug_from_each_student(self):
        """A diff of a folder shows thirty hunks or more, in eight files or more, three of them in each file of the bug."""
        for bug in Bugs.forms:
            draws = [zoo_draw.of_student(ROOT, bug.labs[0], f"student{i}") for i in range(4)]
            for draw in draws:
                draw = zoo_draw.Draw(bug, draw.key)
                counts = {file: hunks(self.texts[file], text) for file, text in applied(ROOT, draw.edits(ROOT)).items()}
                self.assertGreaterEqual(sum(counts.values()), 30, draw)
                self.assertGreaterEqual(len(counts), 8, draw)
                self.assertGreaterEqual(min(counts[file] for file in bug.files()), 3, draw)
            self.assertEqual(len({draw.key for draw in draws}), 4)


class Draws(unittest.TestCase):
    NAMES = ["a", "b", "c", "d", "e"]

    def test_are_the_same_each_time_and_do_not_depend_on_spelling(self):
        self.assertEqual(drawn(self.NAMES, "ab123", 4), drawn(self.NAMES[::-1], " AB123\n", 4))
        for lab in range(10):
            self.assertEqual(drawn(self.NAMES, "ada,bob", lab), drawn(self.NAMES, "Bob,ada", lab))

    def test_of_a_student_differ(self):
        self.assertEqual(sorted(drawn(self.NAMES, "ab123", 0, which) for which in range(1, 6)), self.NAMES)
        for which in (0, 6):
            with self.assertRaisesRegex(LabError, "lab 0 has 5 bugs to draw"):
                drawn(self.NAMES, "ab123", 0, which)
        with self.assertRaises(LabError):
            drawn(self.NAMES, " ", 0)

    def test_are_spread_over_the_bugs(self):
        counts = [0] * 5
        for student in range(1000):
            counts[self.NAMES.index(drawn(self.NAMES, str(student), 4))] += 1
        # 200 each; a standard deviation is 12.6.
        self.assertTrue(all(140 < count < 260 for count in counts), counts)


class Folder(unittest.TestCase):
    """A student's folder, made once."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name) / "a bug"
        cls.draw = zoo_draw.of_student(ROOT, 2, "ab123")
        cls.bug = cls.draw.bug
        curves = {name: curve.Curve({"loss": [(1, 4.0), (2, 3.5)]}) for name in curve.COLOURS}
        with mock.patch.object(zoo_curves, "recorded", return_value=curves):
            zoo.start(ROOT, cls.draw, cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def git(self, *arguments):
        return subprocess.run(["git", "-C", str(self.folder), *arguments], capture_output=True, text=True, check=True).stdout

    def test_is_a_repository_with_one_commit_that_tells_nothing(self):
        self.assertEqual(self.git("rev-list", "--count", "--all").strip(), "1")
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("log", "--format=%s %an").strip(), f"The tree with bug {self.bug.number} StageGPT labs")

    def test_has_the_bug_and_no_answer(self):
        listed = self.git("ls-files").splitlines()
        self.assertEqual([path for path in listed if path.startswith(("labs/", "tests/labs/"))], ["tests/labs/CMakeLists.txt"])
        differing = [path for path in listed
                     if not (ROOT / path).is_file() or (self.folder / path).read_bytes() != (ROOT / path).read_bytes()]
        self.assertEqual(set(differing), {*(edit.file for edit in self.draw.edits(ROOT)), ".lab_zoo", "TASK.md", "curve.svg",
                                          "proof.md", "tests/labs/CMakeLists.txt"})
        self.assertNotIn("add_test", (self.folder / "tests/labs/CMakeLists.txt").read_text())
        kept = set(tree.files(ROOT)) - set(listed)
        self.assertTrue(all(path.startswith(("labs/", "tests/labs/")) for path in kept), kept)
        task = (self.folder / "TASK.md").read_text()
        for hidden in (self.bug.name, self.bug.title, self.bug.caught.target, *self.bug.files(), self.bug.source):
            self.assertNotIn(hidden, task)
        self.assertIn(self.bug.symptom, task)
        self.assertIn("at most 5 lines", task)
        self.assertIn("stage0_train", task)

    def test_has_the_curve(self):
        picture = xml.etree.ElementTree.parse(self.folder / "curve.svg")
        text = " ".join(picture.getroot().itertext())
        self.assertIn("training loss", text)
        self.assertIn("with the bug", text)
        self.assertNotIn(self.bug.name, text)
        self.assertNotIn("curve.svg", zoo.task(self.bug, False))

    def test_is_made_only_where_nothing_is(self):
        with self.assertRaisesRegex(LabError, "exists already; nothing was changed"):
            zoo.start(ROOT, self.draw, self.folder)
        with self.assertRaisesRegex(LabError, "inside of the source tree"):
            zoo.start(ROOT, self.draw, ROOT / "bug")
        with mock.patch.object(starter, "_git", side_effect=LabError("git is not there")), self.assertRaises(LabError):
            zoo.start(ROOT, self.draw, self.folder.parent / "another")
        self.assertEqual(os.listdir(self.folder.parent), ["a bug"])

    def test_a_fix_is_accepted_and_anything_else_is_not(self):
        (file,) = self.bug.files()
        copy, given = self.folder / file, (self.folder / file).read_text()
        right = self.mended()
        self.addCleanup(copy.write_text, given)
        self.assertEqual(self.complaint(), "nothing is changed")
        copy.write_text(right)
        accepted = zoo.change(ROOT, self.draw, self.folder)
        self.assertEqual((accepted.complaint, accepted.lines, accepted.files), ("", 3, {file: right.encode()}))
        copy.write_text(right + "\n" * 3)
        self.assertEqual(self.complaint(), "6 lines are changed, of which 5 are allowed")
        copy.write_text((ROOT / file).read_text())  # without its decoys
        self.assertEqual(self.complaint(), f"{file} is the published file: undo the mistake alone")
        copy.write_text(right)
        for path in ("tests/ops/optimizer_ops_test.cpp", "scripts/test.sh", "stage0_serial/CMakeLists.txt"):
            other = self.folder / path
            before = other.read_text()
            other.write_text(before + "// easier\n")
            self.assertEqual(self.complaint(), f"{path} is changed, which is no code of the product")
            other.write_text(before)
        copy.unlink()
        self.assertEqual(self.complaint(), f"{file} is not there any more, or is no plain file")
        copy.symlink_to(ROOT / file)
        self.assertEqual(self.complaint(), f"{file} is not there any more, or is no plain file")
        copy.unlink()
        copy.write_text(right + " " * (1 << 21))
        self.assertEqual(self.complaint(), f"{file} has more than 1 MiB that are new")
        copy.write_text(right)
        other = self.folder / "tools"  # a folder that is elsewhere
        other.rename(self.folder.parent / "moved")
        self.addCleanup(lambda: (other.unlink(), (self.folder.parent / "moved").rename(other)))
        other.symlink_to(self.folder.parent / "moved")
        self.assertRegex(self.complaint(), r"^tools/\S+ is not there any more, or is no plain file$")

    def complaint(self):
        return zoo.change(ROOT, self.draw, self.folder).complaint

    def mended(self):
        """The file of the bug with its decoys only."""
        return applied(ROOT, [edit for edit in self.draw.edits(ROOT) if edit not in self.bug.edits])[self.bug.files()[0]]

    def test_has_a_ticket_that_is_the_draw(self):
        self.assertEqual(zoo_draw.of_folder(ROOT, self.folder), self.draw)
        ticket = self.folder / ".lab_zoo"
        self.addCleanup(ticket.write_text, self.draw.ticket())
        ticket.write_text("bug 8\n")
        for folder, message in ((ROOT, "is no folder made by `lab zoo start`"), (self.folder, "expected `bug NUMBER` and `deco")):
            with self.assertRaisesRegex(LabError, message):
                zoo_draw.of_folder(ROOT, folder)

    def test_of_another_student_is_refused(self):
        parser = argparse.ArgumentParser()
        zoo.add_verbs(parser)
        for words, refused in (("--lab 2 --student AB123", False), ("", False), ("--lab 2 --student ab123 --which 2", True),
                               ("--lab 2 --student bc234", True)):
            arguments = parser.parse_args(["check", str(self.folder), *words.split()])
            with mock.patch.object(zoo, "check_fix", return_value=True), redirect_stdout(StringIO()) as out:
                self.assertEqual(arguments.run(arguments, ROOT), refused)
            self.assertEqual("is not what" in out.getvalue(), refused, words)
        for words in ("--lab 2", "--student ab123"):
            arguments = parser.parse_args(["check", str(self.folder), *words.split()])
            with self.assertRaisesRegex(LabError, "belong together"):
                arguments.run(arguments, ROOT)

    def test_a_check_builds_and_runs_the_tests_of_the_bug(self):
        (file,) = self.bug.files()
        copy = self.folder / file
        self.addCleanup(copy.write_text, copy.read_text())
        copy.write_text(self.mended())
        asked = []

        def test(_, caught, tests):
            asked.append(tests)
            return PASSED if len(asked) < failing else ended(1, FAILED)

        for failing, answer, words in ((1, False, "Suite.test: file.cpp:7"), (2, False, "tests that were right before: failed"),
                                       (3, True, "The bug is mended")):
            asked.clear()
            out = StringIO()
            with mock.patch.object(zoo_tree.Copy, "build"), mock.patch.object(zoo_tree.Copy, "test", test), redirect_stdout(out):
                self.assertEqual(zoo.check_fix(ROOT, self.folder), answer)
            self.assertIn(words, out.getvalue())
        self.assertEqual(asked, [self.bug.caught.filter, self.bug.also])


FAILED = """[ RUN      ] Suite.test
file.cpp:7: Failure
row 3 after a change of token 8
[  FAILED  ] Suite.test (0 ms)
[==========] 1 test from 1 test suite ran."""


def ended(exit_code, output="", stopped=None):
    return Ended(exit_code, None, stopped, 1.0, output)


PASSED = ended(0, "[==========] 1 test from 1 test suite ran.")


class Proof(unittest.TestCase):
    """What a proof says of programs that only pretend."""

    def prove(self, healthy, sick, built=True):
        bug = named(ROOT, "no_causal_mask")

        class Pretended(zoo_tree.Copy):
            planted = None

            def plant(self, bug):
                self.planted = bug

            def build(self, targets):
                if self.planted and not built:
                    raise LabError("x is not built: an error")

            def test(self, caught, tests):
                return sick if self.planted else healthy

        out = StringIO()
        with tempfile.TemporaryDirectory() as scratch, mock.patch.object(zoo_prove, "Copy", Pretended), redirect_stdout(out):
            (Path(scratch) / "build").mkdir()
            code = zoo_prove.prove(ROOT, Path(scratch), [bug])
        return code, out.getvalue()

    def test_of_a_bug_that_is_caught(self):
        code, text = self.prove(PASSED, ended(1, FAILED))
        self.assertEqual(code, 0)
        self.assertIn("caught: row 3 after a change of token 8", text)
        self.assertIn("2 of 2 variants are caught", text)

    def test_of_bugs_that_are_not(self):
        for healthy, sick, built, words in [
                (PASSED, PASSED, True, "the test passes"),
                (PASSED, ended(1, FAILED.replace("row 3", "something")), True, "its output does not match"),
                (PASSED, ended(None, "", "time"), True, "the test hangs"),
                (PASSED, PASSED, False, "x is not built: an error"),
                (ended(1, FAILED), ended(1, FAILED), True, "without the bug: failed: Suite.test"),
                (ended(0, "[==========] 0 tests from 0 test suites ran."), ended(1, FAILED), True,
                 "without the bug: failed: unit_tests has no test Gpt2Model")]:
            with self.subTest(words=words):
                code, text = self.prove(healthy, sick, built)
                self.assertEqual(code, 1)
                self.assertIn(words, text)
                self.assertIn("0 of 2 variants are caught", text)


class Curves(unittest.TestCase):
    def test_are_read_thinned_and_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = [{"step": step, "loss": 4 / step, "grad_norm": 1.0} for step in range(1, 301)]
            rows[0]["loss"] = None
            rows[99]["validation_loss"] = 2.5
            Path(folder, "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            read = curve.read(Path(folder))
        self.assertEqual(read.values["loss"][:3], [(1, None), (4, 1.0), (7, 0.57143)])
        self.assertEqual(len(read.values["loss"]), curve.MOST_POINTS)
        self.assertEqual(read.values["validation_loss"], [(100, 2.5)])
        self.assertEqual(curve.from_json(json.loads(json.dumps(curve.to_json(read)))), read)
        read.end = "ends with <1>"
        text = curve.svg("a & b", {"healthy": curve.Curve({"loss": [(1, 2.0)]}), "with the bug": read})
        self.assertIn("ends with <1>", " ".join(xml.etree.ElementTree.fromstring(text).itertext()))

    def test_of_a_run_that_did_not_begin_are_empty(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(curve.read(Path(folder)).values["loss"], [])
        xml.etree.ElementTree.fromstring(curve.svg("", {"healthy": curve.Curve(), "with the bug": curve.Curve()}))


if __name__ == "__main__":
    unittest.main()
