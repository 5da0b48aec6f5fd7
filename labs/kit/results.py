"""Results of a graded submission: a table and Gradescope's results.json.

Both are written again after each case, and replaced at once, so that a grading that is stopped leaves the results of
the cases before.
"""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Case:
    """A line of the lab file that gives points."""
    name: str               # "check 3: communication_tests, 3 ranks"
    points: float
    hidden: bool = False    # students see no message before the grades are published
    # waiting (no points yet), passed, failed, crashed, hung, not built, refused, pending (an instructor gives the points)
    status: str = "waiting"
    earned: float = 0
    pending: tuple[float, float] = (0, 0)  # the fewest and the most points, if it is pending
    message: str = ""       # one line
    hint: str = ""
    details: str = ""       # the output, or part of it
    seconds: float = 0
    flags: list[str] = field(default_factory=list)  # what an instructor should look at

    @property
    def done(self) -> bool:
        return self.status != "waiting"


@dataclass
class Report:
    """All cases of one submission, in the order of the lab file."""
    submission: str
    lab: str                # "Lab 4: A ring, and what backward can hide"
    cases: list[Case]
    notes: list[str] = field(default_factory=list)  # for the student, such as why a submission was refused
    look_at: list[str] = field(default_factory=list)  # for the instructor
    student: str = ""       # the id that `lab submit` has packed; of two students, ids with a comma between
    anonymous: bool = False
    late_days: int = 0      # begun after the deadline
    core_seconds: float = 0
    by_hand: dict[str, float] = field(default_factory=dict)  # the points that an instructor gives at most, by their subject
    fingerprints: dict[str, str] = field(default_factory=dict)  # of the files: the same for the same code

    @property
    def points(self) -> float:
        return sum(case.points for case in self.cases)

    @property
    def earned(self) -> float:
        return sum(case.earned for case in self.cases)

    @property
    def pending(self) -> str:
        """The range of points that an instructor may add; empty if none is open."""
        return points_range(*(sum(case.pending[i] for case in self.cases) for i in (0, 1)))

    @property
    def flags(self) -> list[str]:
        return self.look_at + [f"{case.name}: {flag}" for case in self.cases for flag in case.flags]


def write(directory: Path, report: Report) -> None:
    """Writes results.txt and results.json."""
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(directory / "results.txt", text(report).encode())
    replace_file(directory / "results.json", (json.dumps(gradescope(report), indent=1) + "\n").encode())


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that readers find either the old content or the new one."""
    unfinished = path.with_name(path.name + ".tmp")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def number(value: float) -> str:
    """At most two decimals, and none without need."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def points_range(least: float, most: float) -> str:
    return f"{number(least)} to {number(most)}" if most else ""


def text(report: Report) -> str:
    by = f", by {report.student}" if report.student and not report.anonymous else ""
    lines = [f"{report.submission}{by}: {report.lab}: {scored(report)}"]
    lines += [f"  {note}" for note in report.notes]
    names = [case.name if len(case.name) <= 60 else case.name[:57] + "..." for case in report.cases]
    width = max(map(len, names), default=0)
    for name, case in zip(names, report.cases):
        score = f"{number(case.earned)}/{number(case.points)}"
        line = f"  {name:{width}}  {score:>9}  {case.status:12} {case.seconds:7.1f} s  {said(case)}"
        lines.append(line.rstrip())
        if case.hint and case.status not in ("passed", "waiting"):
            lines += [f"  {'':{width}}  hint: {line}" for line in case.hint.splitlines()]
    lines += [f"  look at: {flag}" for flag in report.flags]
    return clean("\n".join(lines)) + "\n"


def scored(report: Report) -> str:
    return f"{number(report.earned)} of {number(report.points)} points" + (f", pending: {report.pending}" if report.pending else "")


def said(case: Case) -> str:
    """The message; of a pending case, with the points that an instructor may give."""
    return f"{points_range(*case.pending)} points, which your instructor gives: {case.message}" if case.pending[1] else case.message


def gradescope(report: Report) -> dict:
    """The object that Gradescope reads (Gradescope, "Autograder Specifications")."""
    tests = []
    for case in report.cases:
        parts = [said(case) or case.status, f"hint: {case.hint}" if case.hint and case.earned < case.points else "",
                 case.details]
        tests.append({"name": case.name, "score": round(case.earned, 2), "max_score": case.points,
                      "status": "passed" if case.earned == case.points else "failed",
                      "output": clean("\n".join(part for part in parts if part)),
                      "visibility": "after_published" if case.hidden else "visible"})
    return {"score": round(report.earned, 2), "execution_time": round(sum(case.seconds for case in report.cases)),
            "output": clean("\n".join(report.notes)), "visibility": "visible", "tests": tests,
            "extra_data": {"flags": report.flags}}


def clean(said: str) -> str:
    """Without terminal colours, control characters, and halves of surrogate pairs, which no encoding has."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}",
                  re.sub(r"\x1b\[[\d;]*m", "", said))
