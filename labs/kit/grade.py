"""`lab grade FILE|DIR`: grades many submissions, in one build tree one after another, or in several beside each other."""

import argparse
import hmac
import multiprocessing
import os
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path

from kit import intake, lab_file, results, summary
from kit.build_tree import BuildTree, default_work
from kit.grader import Grader, Options
from kit.intake import Refused
from kit.lab_file import Lab, LabError
from kit.results import Report


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("submissions", type=Path, nargs="?", metavar="FILE|DIR",
                        help="a submission (an archive, or a directory with the lab's files), or a directory of many")
    parser.add_argument("--lab", type=int, metavar="N", help="the lab (default: the one whose files are there)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="results (default: NAME-graded beside the submissions)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="checks of a submission that run at a time (default: 1)")
    parser.add_argument("--beside", type=int, default=1, metavar="N",
                        help="submissions at a time, each in a build tree of its own (default: 1)")
    parser.add_argument("--deadline", type=datetime.fromisoformat, metavar="TIME",
                        help="2026-11-30T23:59: summary.csv has the days begun after it, by the times of the files")
    parser.add_argument("--anonymous", action="store_true", help="results name no student; names.csv says who is who")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the tree is built (default: a cache)")
    parser.add_argument("--secret", metavar="TEXT",
                        help="seed, model and text of hidden traces follow from it (default: random, kept in --out)")
    parser.add_argument("--again", action="store_true", help="grade submissions again that are graded already")
    parser.add_argument("--one", action="store_true", help="the directory is one submission, whatever it holds")
    parser.add_argument("--prepare", action="store_true", help="build the reference of --lab N, and grade nothing")
    parser.add_argument("--cmake", action="append", default=[], metavar="FLAG",
                        help="a flag for CMake, such as -DSTAGEGPT_NATIVE=OFF; may be repeated")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    """Exit code 0 if all submissions were graded, whatever their points."""
    os.umask(0o022)  # programs of students run as another user, and read what is built here
    check_arguments(arguments)
    given: Path | None = arguments.submissions
    labs = lab_file.all_labs(root)
    lab = lab_file.numbered(root, arguments.lab) if arguments.lab is not None else lab_of(given, labs)
    work = (arguments.work or default_work(root)).absolute()
    if arguments.prepare:
        for own in work_directories(work, arguments.beside):
            Grader(lab, labs, BuildTree(root, own, arguments.cmake), Options(own / "prepared", ""), [root]).prepare()
        return 0
    submissions = [given] if arguments.one else find_submissions(given, lab)
    out = (arguments.out or given.absolute().with_name(f"{intake.submission_name(given.absolute())}-graded")).absolute()
    try:
        out.mkdir(parents=True, exist_ok=True)
        options = Options(out, arguments.secret or kept_secret(out), arguments.jobs, arguments.again,
                          arguments.deadline and arguments.deadline.timestamp(), arguments.anonymous)
    except OSError as error:
        raise LabError(f"--out: {out}: {error.strerror}") from error
    works = work_directories(work, arguments.beside)
    graders = [Grader(lab, labs, BuildTree(root, own, arguments.cmake), options,
                      [*hidden_directories(given), root, *(other for other in works if other != own)]) for own in works]
    for grader in graders:
        grader.prepare()
    print(summary.table(grade_all(graders, submissions)), end="")
    return 0


def work_directories(work: Path, number: int) -> list[Path]:
    return [work, *(work.with_name(f"{work.name}-{i}") for i in range(2, number + 1))]


def check_arguments(arguments: argparse.Namespace) -> None:
    if arguments.prepare:
        if arguments.lab is None or arguments.submissions is not None:
            raise LabError("--prepare: expected --lab N, and no submissions")
    elif arguments.submissions is None:
        raise LabError("expected a submission, or a directory of submissions")
    elif not os.path.lexists(arguments.submissions):
        raise LabError(f"there is no {arguments.submissions}")
    for flag in ("jobs", "beside"):
        if getattr(arguments, flag) < 1:
            raise LabError(f"--{flag}: expected 1 or more")


def grade_all(graders: list[Grader], submissions: list[Path]) -> list[Report]:
    """Each grader takes the next submission as soon as it is done with one."""
    options, reports = graders[0].options, []
    taken = {"secret", "names.csv", "summary.csv", "moodle.csv", "canvas.csv"}  # files beside the submissions' directories
    taken |= {f"{name}.tmp" for name in taken}  # while they are written
    named = []
    for i, path in enumerate(submissions, 1):
        name = unique(pseudonym(path, options.secret) if options.anonymous else intake.submission_name(path), taken)
        named.append((path, name, f"[{i}/{len(submissions)}] " if len(submissions) > 1 else ""))
    for report in graded(graders, named):
        reports.append(report)
        write(options.out, {"summary.csv": summary.summary(reports), **summary.imports(reports)})
    summary.flag_copies(reports, *graders[0].known_code())
    summary.flag_students(reports)
    for report in reports:
        results.write(options.out / report.submission, report)
    write(options.out, {"summary.csv": summary.summary(reports)})
    if options.anonymous:
        write(options.out, {"names.csv": summary.names([(name, path.name) for path, name, _ in named], reports)})
    return reports


def graded(graders: list[Grader], named: list[tuple[Path, str, str]]) -> Iterator[Report]:
    """The reports in the order of the submissions. Several graders have a process each."""
    if len(graders) == 1:
        yield from (graders[0].grade(*one) for one in named)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(graders), context, _take_grader, (graders, context.Value("i", 0))) as pool:
        yield from pool.map(_grade, named)


def _take_grader(graders: list[Grader], taken) -> None:
    """In a new process: the first grader that no other process has."""
    global _grader
    with taken.get_lock():
        _grader = graders[taken.value]
        taken.value += 1


def _grade(one: tuple[Path, str, str]) -> Report:
    return _grader.grade(*one)


def write(out: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        results.replace_file(out / name, content.encode())


def pseudonym(path: Path, secret: str) -> str:
    """The same for the same name and secret: a second grading finds the results of the first."""
    return hmac.new(secret.encode(), os.fsencode(path.name), "sha256").hexdigest()[:8]


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number if another submission has it already, such as a folder and its archive."""
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found.lower())
    return found


def hidden_directories(given: Path) -> list[Path]:
    """Where the submissions lie, unless that is a directory of the system, which programs need."""
    directory = given.resolve() if given.is_dir() else given.absolute().parent.resolve()
    needed = [Path(sys.prefix), Path("/usr/bin"), Path("/bin"), Path("/lib"), Path("/etc")]
    return [] if any(path.is_relative_to(directory) for path in needed) else [directory]


def find_submissions(path: Path, lab: Lab) -> list[Path]:
    """A file, or a directory that holds one of the lab's files, is one submission; another directory holds many."""
    if path.is_symlink() or not path.is_dir() or any((path / name).exists() for name in intake.paths(lab)):
        return [path]
    found = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if not found:
        raise LabError(f"{path} holds no submissions")
    return found


def lab_of(path: Path, labs: list[Lab]) -> Lab:
    """The only lab whose files a submission (or the first readable one of a directory) holds."""
    for candidate in [path, *(sorted(path.iterdir()) if path.is_dir() else [])]:
        fitting = [lab for lab in labs if _holds(candidate, lab)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise LabError(f"{candidate} holds the files of several labs; --lab N says which one is graded")
    raise LabError(f"{path} holds the files of no lab; --lab N says which one is graded")


def _holds(path: Path, lab: Lab) -> bool:
    try:
        intake.read(path, lab, [])
        return True
    except (Refused, OSError):
        return False


def kept_secret(out: Path) -> str:
    """Drawn once for all submissions of a grading."""
    kept = out / "secret"
    if not kept.exists():
        results.replace_file(kept, secrets.token_hex(16).encode())
        kept.chmod(0o600)
    return kept.read_text()
