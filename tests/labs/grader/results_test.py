"""Results as text and Gradescope's JSON."""

import csv
import dataclasses
import io
import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "labs"))

from kit import intake, results, similar, summary  # noqa: E402
from kit.results import Case, Report  # noqa: E402


def report() -> Report:
    return Report("alice", "Lab 4: Ranks", [
        Case("check 1: ring", 6, status="passed", earned=6, seconds=1.5),
        Case("check 2: \x1b[31mred\x1b[0m", 4, status="crashed", message="SIGSEGV\0\ud800 in <Ring>", details="\x07", hint="Look."),
        Case("trace: stage1", 10, hidden=True, status="failed", earned=0),
        Case("time: bench", 5, status="pending", pending=(1.25, 5), message="busy", flags=["too fast"]),
        Case("count: bytes", 3)], notes=["a note"], look_at=["calls f"],
        by_hand={"bugs": 10, "answers": 10})


class ResultsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="results-test-"))
        self.addCleanup(shutil.rmtree, self.top)

    def test_any_characters_give_valid_files(self) -> None:
        results.write(self.top, report())
        message = "SIGSEGV\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} in <Ring>"
        self.assertRegex((self.top / "results.txt").read_text(), rf"check 2: red +0/4  crashed .*{message}\n")
        written = json.loads((self.top / "results.json").read_text())
        self.assertTrue(written["tests"][1]["output"].startswith(message))
        self.assertEqual((written["score"], written["extra_data"]),
                         (6, {"flags": ["calls f", "time: bench: too fast"]}))
        self.assertEqual(written["tests"][3]["output"], "1.25 to 5 points, which your instructor gives: busy")
        self.assertEqual([test["visibility"] for test in written["tests"]],
                         ["visible", "visible", "after_published", "visible", "visible"])
        self.assertNotIn("calls f", json.dumps(written["tests"]) + written["output"])

    def test_text(self) -> None:
        lines = results.text(report()).splitlines()
        self.assertEqual(lines[:2], ["alice: Lab 4: Ranks: 6 of 28 points, pending: 1.25 to 5", "  a note"])
        self.assertRegex(lines[2], r"^  check 1: ring +6/6  passed +1.5 s$")
        self.assertIn("hint: Look.", lines[4])
        self.assertRegex(lines[6], r"time: bench +0/5  pending +0.0 s  1.25 to 5 points, which your instructor gives: busy$")
        self.assertEqual(lines[-2:], ["  look at: calls f", "  look at: time: bench: too fast"])

    def test_files_are_replaced_at_once(self) -> None:
        """Who has opened the old file goes on reading it."""
        path = self.top / "file"
        results.replace_file(path, b"old")
        with open(path, "rb") as old:
            results.replace_file(path, b"new")
            self.assertEqual((old.read(), path.read_bytes()), (b"old", b"new"))
        self.assertEqual(list(self.top.iterdir()), [path])

    def test_the_summary_is_csv(self) -> None:
        """With a column for each line of the lab file."""
        odd = Report('bob "the\nbuilder", =1+1', "Lab 4", [Case(case.name, 2, earned=0.125) for case in report().cases],
                     by_hand=report().by_hand, student="bob", late_days=2, core_seconds=7.8)
        first, bob, alice = self.rows(summary.summary([odd, report()]))
        self.assertEqual(first, ["submission", "student", "points", "of", "pending", "late_days", "core_seconds", "flags", "notes",
                                 "check 1: ring", "check 2: red", "trace: stage1", "time: bench", "count: bytes", "bugs (of 10)", "answers (of 10)"])
        self.assertEqual(bob, ['bob "the builder", =1+1', "bob", "0.62", "10", "", "2", "8", "", "", *["0.12"] * 5, "", ""])
        self.assertEqual(alice, ["alice", "", "6", "28", "1.25 to 5", "0", "0", "calls f; time: bench: too fast", "a note",
                                 "6", "0", "0", "pending", "0", "", ""])

    def rows(self, text: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(text)))

    def test_files_for_moodle_and_canvas(self) -> None:
        """A row for each student of a pair; none for points that are not complete, or for nobody. Points by hand are empty fields."""
        done = [Case("check 1: ring", 10, status="passed", earned=7.5)]
        reports = [Report("a", "Lab 4: Ranks", done, student="ada,bob", by_hand={"bugs": 10, "answers": 5}), Report("b", "Lab 4: Ranks", done),
                   dataclasses.replace(report(), student="carol"), Report("d", "", [Case("check 1: ring", 10)], student="dave")]
        files = summary.imports(reports)
        self.assertEqual(self.rows(files["moodle.csv"]), 
                         [["student", "Lab 4: Ranks", "Lab 4: Ranks: bugs", "Lab 4: Ranks: answers"],
                          ["ada", "7.5", "", ""], ["bob", "7.5", "", ""]])
        self.assertEqual(self.rows(files["canvas.csv"]),
                         [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab 4: Ranks", "Lab 4: Ranks: bugs",
                           "Lab 4: Ranks: answers"], ["Points Possible", "", "", "", "", "10", "10", "5"],
                          ["ada", "", "", "ada", "", "7.5", "", ""], ["bob", "", "", "bob", "", "7.5", "", ""]])

    def test_a_student_of_two_submissions(self) -> None:
        """Has no row, and both are flagged. A pair of one student has one row."""
        done = [Case("check 1: ring", 10, status="passed", earned=7.5)]
        reports = [Report(name, "Lab 4", done, student=student) for name, student in
                   [("a", "ada,bob"), ("b", "Ada"), ("c", "eve,eve")]]
        reports[1].anonymous = True
        for _ in range(2):  # a second grading says it once
            summary.flag_students(reports)
        self.assertEqual([report.look_at for report in reports], [["ada is in b too"], ["a student is in a too"], []])
        for name in ("moodle.csv", "canvas.csv"):
            self.assertEqual([row[0] for row in self.rows(summary.imports(reports)[name])][-2:], ["bob", "eve"])

    def test_copies(self) -> None:
        def handed_in(name: str, ring: str, sync: str) -> Report:
            return Report(name, "Lab 4", [], fingerprints={"ring": intake.fingerprint(ring), "sync": intake.fingerprint(sync)})

        starter = {name: intake.fingerprint("todo(); ") for name in ("ring", "sync")}
        solution = {name: intake.fingerprint(f"solved {name}") for name in ("ring", "sync")}
        reports = [handed_in("a", "one;", "todo();"), handed_in("b", "two;  // mine", "todo();"), handed_in("c", "/* c */ two ;", ""),
                   handed_in("d", "solved ring", "solved ring")]
        for _ in range(2):  # a second grading says it once
            summary.flag_copies(reports, starter, solution)
        self.assertEqual([report.look_at for report in reports], [[], ["ring has the code of c"], ["ring has the code of b"],
                                                                  ["ring has the code of the solution"]])

    def test_similar_code(self) -> None:
        """Other names, numbers, comments and order of functions hide nothing; what the starter or many have does not count."""
        marks = "+-*/%&|^"
        def code(number: int) -> str:
            return "{" + "".join(f" x {marks[number >> i & 7]} y;" for i in range(0, 60, 3)) + "}"

        copied, usual = [code(71 ** 9), code(37 ** 11)], code(89 ** 10)
        renamed = [text.replace("x", "left_side").replace("y", "42 /* mine */") for text in reversed(copied)]
        given = {"a.h": code(53 ** 10)}
        texts = {similar.SOLUTION: code(97 ** 9), "ada": "".join(copied), "bob": given["a.h"] + "".join(renamed), "eve": code(61 ** 10),
                 "dan": given["a.h"] + code(97 ** 9)}
        own = {who: similar.windows({"a.h": text + usual}) for who, text in texts.items()}
        found = similar.pairs(own, similar.windows(given), 30)
        self.assertEqual({tuple(pair) for _, *pair in found}, {("ada", "bob"), (similar.SOLUTION, "dan")})
        self.assertGreater(min(share for share, *_ in found), 70)


if __name__ == "__main__":
    unittest.main()
