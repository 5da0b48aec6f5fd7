"""Grades one submission of a lab, case by case."""

import contextlib
import json
import re
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kit import building, checks, commands, cutter, intake, isolated, measures, results, sources, starter, symbols
from kit.build_tree import BUILD_SECONDS, BuildTree
from kit.intake import Refused, Submission
from kit.isolated import Finished, Limits, Place
from kit.lab_file import ANSWER_POINTS, Check, Count, Lab, LabError, Measure, Trace
from kit.lab_file import Time as TimeLine
from kit.measures import Measured, Pair
from kit.programs import Programs
from kit.quiet import Quiet
from kit.results import Case, Report

REFERENCE_SECONDS = 3600  # limit of a check of the reference


@dataclass(frozen=True)
class Options:
    out: Path
    secret: str          # of the traces
    jobs: int = 1        # checks at a time
    again: bool = False  # grade finished submissions again
    deadline: float | None = None  # seconds since 1970
    anonymous: bool = False  # results name no student
    least_seconds: float = measures.LEAST_SECONDS
    limits: Limits = Limits()


class Grader:
    def __init__(self, lab: Lab, labs: list[Lab], tree: BuildTree, options: Options, cover: list[Path]):
        self.lab, self.labs, self.tree, self.options = lab, labs, tree, options
        self.scratch = tree.work / "scratch"
        self.cover = [tree.reference_bin, self.scratch, options.out, *cover]  # what no program of a student sees
        self.lines: list[Check | Measure] = [*lab.checks, *lab.measures]
        self.began = time.monotonic()
        self.quiet = Quiet()
        self.subject = "the reference"  # what is built or run now, for the lines of progress

    def say(self, line: str) -> None:
        """A line of progress, after the seconds since the grader began."""
        print(results.clean(f"{time.monotonic() - self.began:6.0f} s  {self.subject}: {line}"), file=sys.stderr, flush=True)

    def prepare(self) -> None:
        """Builds the reference, and lets it pass all lines but those of time: the times of its checks set the limits of the
        students'."""
        with self.quiet.beside_others():
            self.tree.prepare(self.lab, self._reference_seconds, self.say)

    def known_code(self) -> tuple[dict[str, str], dict[str, str]]:
        """Fingerprints of the starter's files and of the solution's."""
        starters = {name: intake.fingerprint(text) for name, text in starter.students_files(self.lab).items()}
        return starters, {name: intake.fingerprint((self.tree.root / name).read_text()) for name in starters}

    def _reference_seconds(self, line: Check | Measure) -> float:
        if isinstance(line, TimeLine):
            return 0
        began = time.monotonic()
        self.say(f"{self._number(line)}: {line if isinstance(line, Check) else type(line).__name__.lower()}")
        if isinstance(line, Check):
            ended = self._run_check(line, REFERENCE_SECONDS)
        else:
            try:
                ended = self._measure(line, self.tree.reference_bin)
            except LabError as error:
                raise LabError(f"{self.lab.file}:{line.line}: {error}") from error
        if ended.status != "passed":
            raise LabError(f"{self.lab.file}:{line.line}: the tree itself does not pass this line ({ended.status}: "
                           f"{first_line(ended.message)})")
        return time.monotonic() - began

    def grade(self, path: Path, name: str, prefix: str = "") -> Report:
        """Grades a submission; its results are written after each case. `prefix` precedes lines of progress. Nothing of it runs
        while a line `time` of another grading of this machine does."""
        with self.quiet.beside_others():
            return self._grade(path, name, prefix)

    def _grade(self, path: Path, name: str, prefix: str) -> Report:
        report = Report(name, f"Lab {self.lab.number}: {self.lab.title}", self._plan(),
                        by_hand={"bugs": self.lab.bug_points, "answers": ANSWER_POINTS})
        directory, before = self.options.out / name, children_seconds()
        report.anonymous = self.options.anonymous
        self.subject = f"{prefix}{name}"
        try:
            submission = intake.read(path, self.lab, self.labs)
            report.student, report.fingerprints = submission.student, submission.fingerprints
            report.late_days = intake.late_days(path, self.options.deadline)
            state = {"submission": submission.digest, "reference": self.tree.reference.state}
            if self._resume(report, directory, state) and all(case.done for case in report.cases):
                self.say("graded already")
                return report
            if submission.answers is not None:
                directory.mkdir(parents=True, exist_ok=True)
                answers = submission.nameless_answers() if report.anonymous else submission.answers
                results.replace_file(directory / "answers.md", answers.encode())
            report.look_at += submission.flags
            self._accept(self._screen(submission), report)
            self.say("building")
            self._build(submission, report)
        except (Refused, OSError) as error:
            why = str(error)
            report.notes.append(f"refused: {why}")
            for case in report.cases:
                case.status, case.earned, case.message = "refused", 0, why
            report.core_seconds += children_seconds() - before
            results.write(directory, report)
            self.say(f"refused: {why}")
            return report
        def save() -> None:
            report.core_seconds = earlier + children_seconds() - before
            self._save(report, directory, state)

        earlier = report.core_seconds
        self._run_cases(report, save)
        self.say(f"{results.scored(report)}, {report.core_seconds:.0f} core-seconds")
        return report

    def _number(self, line: Check | Measure) -> str:
        return f"{self.lines.index(line) + 1} of {len(self.lines)}"

    def _plan(self) -> list[Case]:
        cases = []
        for line in self.lines:
            if isinstance(line, Check):
                ranks = f", ranks {line.ranks[0]}-{line.ranks[-1]}" if line.ranks else ""
                cases.append(Case(f"check {len(cases) + 1}: {line.target}{ranks}, {line.filter}", line.points,
                                  hint=line.hint))
            else:
                subject = line.counter if isinstance(line, Count) else line.program
                kind = type(line)
                number = sum(isinstance(one, kind) for one in self.lines[:len(cases) + 1])
                cases.append(Case(f"{kind.__name__.lower()} {number}: {subject}", line.points,
                                  hidden=isinstance(line, Trace)))
        return cases

    # Before anything runs.

    def _accept(self, findings: symbols.Findings, report: Report) -> None:
        report.look_at += [flag for flag in findings.flags if flag not in report.look_at]
        if findings.refused:
            raise Refused("; ".join(findings.refused[:3]))

    def _screen(self, submission: Submission) -> symbols.Findings:
        found = symbols.Findings()
        for name, content in submission.files.items():
            found.add(sources.screen(name, content.decode(), (self.tree.root / name).read_text()))
        return found

    def _build(self, submission: Submission, report: Report) -> None:
        self.tree.put(submission.files)
        finished = self._build_once(report)
        lacking = [part for part, allowed in finished.isolation.items() if not allowed and part != "user"]
        if lacking:
            report.look_at.append(f"not isolated: {', '.join(lacking)}")
        stubs = starter.students_files(self.lab)
        while stubs and not finished.ok and not finished.stopped:
            for name, why in self._blamed(finished.output, submission, stubs).items():
                report.notes.append(f"{name} does not compile, and the starter's is in its place: {self._shown(why)}")
                self.say(report.notes[-1])
                self.tree.put({name: stubs.pop(name).encode()})
            finished = self._build_once(report)
        if finished.ok:
            return
        why = self._shown(finished.message if finished.stopped else building.first_error(finished.output))
        report.notes.append(f"does not build: {why}")
        for case, line in zip(report.cases, self.lines):
            if not self.tree.is_built(line):
                case.status, case.message, case.earned = "not built", why, 0

    def _build_once(self, report: Report) -> Finished:
        place = Place(measures.fresh(self.scratch / "build"), own=[self.tree.build], cover=self.cover,
                      show=[self.tree.source, self.tree.tools])
        finished = self.tree.build_all(place, replace(self.options.limits, seconds=BUILD_SECONDS))
        self._accept(self._symbols(), report)
        return finished

    def _shown(self, why: str) -> str:
        return first_line(why.replace(f"{self.tree.source}/", ""))

    def _blamed(self, output: str, submission: Submission, files: dict[str, str]) -> dict[str, str]:
        """Which of the files prevent a build: those that lack a function which an error names, else those with an error, else all."""
        errors = "\n".join(re.findall(r"^.*(?:error:|undefined reference).*", output, re.MULTILINE))
        lacking = [written.path for written in self.lab.write if written.path in files and any(
            re.search(rf"(?<!\w){re.escape(re.split(' |::', cut.label)[-1])}(?!\w)", errors)
            and not cutter.is_defined(submission.files[written.path].decode(), cut) for cut in written.cuts)]
        return dict.fromkeys(lacking, building.first_error(output)) or building.blamed(output, files) or dict.fromkeys(
            files, building.first_error(output))

    def _symbols(self) -> symbols.Findings:
        found = symbols.Findings()
        for path in symbols.objects_of(self.tree.build, [self.tree.source / name for name in intake.paths(self.lab)]):
            reference = self.tree.reference.objects.get(path, symbols.Symbols())
            found.add(symbols.compare(symbols.of_object(path), reference))
        return found

    # Cases.

    def _run_cases(self, report: Report, save: Callable[[], None]) -> None:
        """Checks run several at a time, then measures, each alone."""
        save()
        waiting = [(case, line) for case, line in zip(report.cases, self.lines) if not case.done]
        together = [pair for pair in waiting if isinstance(pair[1], Check)]
        alone = [pair for pair in waiting if not isinstance(pair[1], Check)]

        def done(case: Case, line: Check | Measure) -> None:
            save()
            why = f": {case.message}" if case.message else ""
            earned = results.points_range(*case.pending) or results.number(case.earned)
            self.say(f"{self._number(line)}: {case.name}: {case.status}, {earned} of {results.number(case.points)}{why}")

        with ThreadPoolExecutor(self.options.jobs) as pool:
            for (_, line), case in zip(together, pool.map(self._run_case, together)):
                done(case, line)
        for case, line in alone:
            with self.quiet.alone() if isinstance(line, TimeLine) else contextlib.nullcontext():
                done(self._run_case((case, line)), line)

    def _run_case(self, pair: tuple[Case, Check | Measure]) -> Case:
        """Runs a case. If the grader or the reference fails, an instructor decides."""
        case, line = pair
        began = time.monotonic()
        try:
            if isinstance(line, Check):
                self._grade_check(case, line)
            else:
                self._grade_measure(case, line)
        except (LabError, RuntimeError, OSError, ArithmeticError, ValueError) as error:
            case.status, case.pending, case.message = "pending", (0, case.points), str(error)
        case.seconds = time.monotonic() - began
        return case

    def _grade_check(self, case: Case, check: Check) -> None:
        limit = measures.limit(self.tree.reference.seconds.get(check.line, 0), self.options.least_seconds)
        ended: list[Finished] = []
        outcome = self._run_check(check, limit, ended)
        case.status = outcome.status.replace("_", " ")
        case.earned = case.points if outcome.passed else 0
        case.message, _, case.details = outcome.message.partition("\n")
        case.hint = "\n".join(checks.hints(check, outcome.message))
        if not outcome.passed and ended and ended[-1].watchdog:
            case.status = "hung"
            case.message += f"; {ended[-1].watchdog}"

    def _run_check(self, check: Check, seconds: float, ended: list[Finished] | None = None) -> checks.Outcome:
        return checks.run_on_all(self.tree.build, check, self._runner(f"check-{check.line}", ended), seconds)

    def _runner(self, name: str, ended: list[Finished] | None) -> commands.Runner:
        """Appends to `ended` what has run."""
        def run(command: list[str], _: Path, environment: dict[str, str], seconds: float) -> Finished:
            place = Place(measures.fresh(self.scratch / name), cover=self.cover,
                          show=[self.tree.build, self.tree.source])
            finished = isolated.run(command, place, replace(self.options.limits, seconds=seconds), environment)
            if ended is not None:
                ended.append(finished)
            return finished
        return run

    def _grade_measure(self, case: Case, line: Measure) -> None:
        measured = self._measure(line, self.tree.build / "bin")
        case.status, case.earned, case.message = measured.status, measured.earned, measured.message
        case.details, case.flags, case.pending = measured.details, measured.flags, measured.pending

    def _measure(self, line: Measure, programs: Path) -> Measured:
        """Compares programs with those of the reference."""
        scratch = self.scratch / "measure"
        names = self.tree.reference.programs
        limits = replace(self.options.limits, seconds=REFERENCE_SECONDS)
        student = Programs(programs, names,
                           Place(scratch, cover=self.cover, show=[self.tree.build, self.tree.source, self.tree.tools]),
                           limits)
        reference = Programs(self.tree.reference_bin, names, Place(scratch, show=[self.tree.tools]), limits)
        pair = Pair(student, reference, scratch, self.tree.counting_library, self.options.least_seconds, self.say)
        if isinstance(line, Count):
            return measures.count(line, pair)
        if isinstance(line, TimeLine):
            return measures.time(line, pair)
        return measures.trace(line, pair, self.options.secret, reference)

    # Resuming.

    def _save(self, report: Report, directory: Path, state: dict) -> None:
        results.write(directory, report)
        saved = {**state, "notes": report.notes, "look_at": report.look_at, "core_seconds": report.core_seconds,
                 "cases": [asdict(case) for case in report.cases]}
        results.replace_file(directory / "cases.json", json.dumps(saved).encode())

    def _resume(self, report: Report, directory: Path, state: dict) -> bool:
        """Takes over the cases that are done, if submission and reference are the same as then. What is pending runs again."""
        try:
            saved = json.loads((directory / "cases.json").read_text())
            cases = [Case(**case) for case in saved["cases"]]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        same = all(saved.get(key) == value for key, value in state.items())
        if self.options.again or not same or [case.name for case in cases] != [case.name for case in report.cases]:
            return False
        report.core_seconds = saved.get("core_seconds", 0)
        report.cases = [new if case.status == "pending" else case for case, new in zip(cases, report.cases)]
        if all(case.done for case in report.cases):
            report.notes, report.look_at = saved["notes"], saved["look_at"]
        return True


def children_seconds() -> float:
    """Core-seconds of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_line(text: str) -> str:
    return (text.splitlines() or [""])[0][:300]
