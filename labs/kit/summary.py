"""What an instructor gets of all submissions together: summary.csv, files for Moodle and Canvas, and who handed in the same."""

import csv
import io
from collections import Counter
from collections.abc import Iterable

from kit.results import Report, clean, number, scored

COLUMNS = "submission student points of pending late_days core_seconds flags notes".split()


def summary(reports: list[Report]) -> str:
    """One row for each submission. The last columns are the lines of the lab file, and empty ones for points that are given by hand."""
    by_hand = [f"{subject} (of {number(points)})" for subject, points in reports[0].by_hand.items()] if reports else []
    rows = [[*COLUMNS, *(case.name for case in reports[0].cases), *by_hand]] if reports else []
    for report in reports:
        rows.append([report.submission, "" if report.anonymous else report.student, number(report.earned), number(report.points),
                     report.pending, str(report.late_days), f"{report.core_seconds:.0f}", "; ".join(report.flags),
                     "; ".join(report.notes), *("pending" if case.pending[1] else number(case.earned) for case in report.cases), *[""] * len(by_hand)])
    return _csv(rows)


def imports(reports: list[Report]) -> dict[str, str]:
    """Files of points, by name: one row for each student whose points are complete, and who is in one submission only. Moodle
    asks which column is what; Canvas wants these columns, and a row of the points that are possible. Points that are given by hand
    have columns of their own; neither imports an empty field."""
    submissions = Counter(key for report in reports for key in students(report))
    complete = [(student, report) for report in reports for key, student in students(report).items()
                if submissions[key] == 1 and not report.pending and all(case.done for case in report.cases)]
    lab, points, by_hand = (reports[0].lab, reports[0].points, reports[0].by_hand) if reports else ("", 0, {})
    columns, empty = [lab, *(f"{lab}: {subject}" for subject in by_hand)], [""] * len(by_hand)
    canvas = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *columns]
    return {"moodle.csv": _csv([["student", *columns], *([student, number(report.earned), *empty] for student, report in complete)]),
            "canvas.csv": _csv([canvas, ["Points Possible", *[""] * 4, *map(number, [points, *by_hand.values()])],
                                *([student, "", "", student, "", number(report.earned), *empty] for student, report in complete)])}


def students(report: Report) -> dict[str, str]:
    """The ids of a submission, each once, by their small letters."""
    return {student.lower(): student for student in report.student.split(",") if student}


def flag_students(reports: list[Report]) -> None:
    """Flags submissions with the id of a student who is in another one too. Anonymous results do not say who that is."""
    for report in reports:
        for key, student in students(report).items():
            others = [other.submission for other in reports if other is not report and key in students(other)]
            flag = f"{'a student' if report.anonymous else student} is in {', '.join(others)} too"
            if others and flag not in report.look_at:
                report.look_at.append(flag)


def flag_copies(reports: list[Report], starter: dict[str, str], solution: dict[str, str]) -> None:
    """Flags files with the code of another submission or of the solution, but not those in which nothing was written. The
    dictionaries are fingerprints of files."""
    for report in reports:
        for name, fingerprint in report.fingerprints.items():
            others = [other.submission for other in reports if other is not report and other.fingerprints.get(name) == fingerprint]
            others += ["the solution"] * (fingerprint == solution[name])
            flag = f"{name} has the code of {', '.join(others)}"
            if others and fingerprint != starter[name] and flag not in report.look_at:
                report.look_at.append(flag)


def names(submissions: list[tuple[str, str]], reports: list[Report]) -> str:
    """Who is who: what the results call a submission, its own name, and its student."""
    return _csv([["submission", "name", "student"], *([*names, report.student] for names, report in zip(submissions, reports))])


def table(reports: list[Report]) -> str:
    """One line for each submission, for the terminal."""
    width = max((len(report.submission) for report in reports), default=0)
    lines = []
    for report in reports:
        looks = f"  ({len(report.flags)} to look at)" if report.flags else ""
        note = f"  {report.notes[0]}" if report.notes else ""
        lines.append(f"{report.submission:{width}}  {scored(report)}{looks}{note}")
    return clean("\n".join(lines)) + "\n"


def _csv(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([clean(field).replace("\n", " ") for field in row] for row in rows)
    return text.getvalue()
