"""Checks the commands in README files and docs/: their programs, scripts, presets, options and flags exist.

    commands_test.py DIR        with the directory of the programs

Commands that take little time are run, on tiny models and texts: generation, evaluation, inspection, conversion, preparation of
data, resuming, verification and some scripts. stageN_bench and compare_stages are run with smaller sizes than the text
gives. For training commands the flags and their values are checked with --print-config; for other commands the flags
are compared with --help.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import markdown
import shell_commands
import workplace
from shell_commands import Call

ROOT = markdown.ROOT
JOB = re.compile(r"stage([0-3])_(train|generate|evaluate|inspect|verify|bench)(_emulated)?")
# Flags of other programs that the text mentions: Open MPI's, Slurm's, CMake's.
FOREIGN_FLAGS = {"--oversubscribe", "--bind-to", "--map-by", "--report-bindings", "--hostfile", "--mca", "--preset",
                 "--external-launcher", "--gpus-per-task", "--gpu-bind", "--mpi", "--signal", "--no-install-recommends", "--quiet",
                 "--install", "--cap-add", "--gtest_filter", "--gtest_list_tests",
                 "--no-show-raw-insn"}

QUICK_SCRIPTS = {"scripts/scaling_model.py", "scripts/scaling_grids.py"}  # they take no time and write no file
# Values with which stageN_bench and the trainings of compare_stages take little time.
TINY_MODEL = {"--n-layer": "1", "--n-head": "2", "--n-embd": "16"}
TINY_GENERATION = {"--model": "nano", **TINY_MODEL, "--steps": "1"}
TINY_BENCH = {**TINY_GENERATION, "--batch-size": "2", "--seq-len": "8", "--warmup": "0"}
SMALLER_FLAGS = {"--tensor-parallel": "1", "--pipeline-parallel": "1"}  # a call is run with one rank
TINY_COMPARISON = ["--stages", "0", "--repeats", "1", "--no-reproducible-pass", "--overwrite"]


class Programs:
    """The programs of a build, and their flags."""

    def __init__(self, directory: Path):
        self.directory = directory

    def path(self, name: str) -> Path:
        """The path of a program. For a GPU program, that of its emulated version, which every build has."""
        job = JOB.fullmatch(name)
        return self.directory / (name + "_emulated" if job and job.group(1) in "23" and not job.group(3) else name)

    def run(self, name: str, arguments: list[str], directory: Path) -> subprocess.CompletedProcess:
        environment = dict(os.environ, OMP_NUM_THREADS="1",
                           ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
        return subprocess.run([self.path(name), *arguments], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    @functools.cache
    def run_once(self, path: Path, arguments: tuple[str, ...], directory: Path) -> subprocess.CompletedProcess:
        """run(), or what it gave for the same program and arguments before: many examples of a bench differ in the sizes only, or
        in the word `_emulated`."""
        return self.run(path.name, list(arguments), directory)

    @functools.cache
    def flags(self, name: str) -> set[str]:
        return set(re.findall(r"^  (--[\w-]+)", self.run(name, ["--help"], ROOT).stdout, re.MULTILINE)) | {"--help"}


def flags_in(arguments: list[str]) -> list[str]:
    return [argument.split("=")[0] for argument in arguments if argument.startswith("--") and argument != "--"]


def unknown_flags(call: Call, programs: Programs) -> list[str]:
    """The flags of a call that the program or script does not have."""
    own, behind = call.arguments, []
    if "--" in own:  # compare_stages passes the rest to training programs
        own, behind = own[: own.index("--")], own[own.index("--") :]
    if call.is_script:
        known = set(re.findall(r"--[\w-]+", (ROOT / call.name).read_text(encoding="utf-8")))
        if call.name.endswith(".sbatch"):  # passes its arguments to a training program
            known |= programs.flags("stage3_train") | programs.flags("stage1_train")
    elif (ROOT / f"bench/{call.name}.cpp").exists():
        known = set(re.findall(r"--[\w-]+", (ROOT / f"bench/{call.name}.cpp").read_text(encoding="utf-8")))
        own = [argument for argument in own if not argument.startswith("--benchmark_")]
    elif call.name.endswith("_tests"):
        known = {"--gtest_filter"}
    else:
        known = programs.flags(call.name)
    handed_on = set().union(*(programs.flags(f"stage{stage}_train") for stage in "0123")) if behind else set()
    return [flag for flag in flags_in(own) if flag not in known] + [flag for flag in flags_in(behind) if flag not in handed_on]


def missing(call: Call, programs: Programs) -> str:
    """An error message if the program or script of a call does not exist; otherwise empty."""
    if call.is_script:
        return "" if (ROOT / call.name).exists() else f"there is no {call.name}"
    for source in (f"tests/fuzz/{call.name}.cpp", f"bench/{call.name}.cpp"):  # not built in every build
        if (ROOT / source).exists():
            return ""
    return "" if programs.path(call.name).exists() else f"there is no program {call.name}"


def with_values(arguments: list[str], values: dict[str, str]) -> list[str]:
    """Arguments in which these flags have these values."""
    kept = [argument for i, argument in enumerate(arguments)
            if argument not in values and (i == 0 or arguments[i - 1] not in values)]
    return kept + [word for flag_and_value in values.items() for word in flag_and_value]


def tiny_comparison(arguments: list[str]) -> list[str]:
    """A comparison of stage 0 with itself, with tiny trainings. The flags after -- are passed to training programs."""
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:dashes], *TINY_COMPARISON, "--", *with_values(arguments[dashes + 1 :], {**TINY_MODEL, "--steps": "1"})]


def result_of(call: Call, programs: Programs, scratch: Path) -> subprocess.CompletedProcess | None:
    """Runs a call, or lets its program parse the flags. None if that would take long."""
    if any("$" in argument for argument in call.arguments):
        return None
    if "--emulator-report" in call.arguments and not programs.path("stage2_bench_profiled").exists():  # not in every build
        return None
    if call.name in QUICK_SCRIPTS:
        return subprocess.run([ROOT / call.name, *call.arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    job = JOB.fullmatch(call.name)
    if job and job.group(2) == "train" and "--resume" not in call.arguments:
        return programs.run_once(programs.path(call.name), (*call.arguments, "--print-config"), scratch)
    if job and job.group(2) == "verify":
        return programs.run(call.name, call.arguments, ROOT)
    if job and job.group(2) == "bench":
        values = {} if "--budget" in call.arguments else TINY_GENERATION if "--generate" in call.arguments else TINY_BENCH
        smaller = {flag: value for flag, value in SMALLER_FLAGS.items() if flag in call.arguments}
        return programs.run_once(programs.path(call.name), tuple(with_values(call.arguments, values | smaller)), scratch)
    if call.name == "compare_stages":
        return programs.run(call.name, tiny_comparison(call.arguments), scratch)
    if (job and job.group(2) in ("train", "generate", "evaluate", "inspect")) or call.name in ("convert_checkpoint", "prepare_data"):
        return programs.run(call.name, call.arguments, scratch)
    return None


def problem_of(call: Call, programs: Programs, scratch: Path) -> str:
    """An error message if a call is wrong; otherwise empty."""
    if problem := missing(call, programs):
        return problem
    if unknown := unknown_flags(call, programs) if not call.name.startswith("fuzz_") else []:
        return f"{call.name} has no {', '.join(unknown)}"
    result = result_of(call, programs, scratch)
    return f"exit code {result.returncode}: {result.stderr.strip()}" if result and result.returncode else ""


def unknown_options(command: str) -> list[str]:
    """The CMake presets and options in a command that the project does not have."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    names = {preset["name"] for preset in presets["configurePresets"]}
    files = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")]
    options = set(re.findall(r"STAGEGPT_\w+", "".join(file.read_text(encoding="utf-8") for file in files)))
    return [f"preset {name}" for name in re.findall(r"--preset[ =]([\w-]+)", command) if name not in names] + [
        f"option {name}" for name in re.findall(r"-D(STAGEGPT_\w+)", command) if name not in options]


def problems(page: Path, programs: Programs, scratch: Path) -> tuple[int, list[str]]:
    """The number of calls in a page's command blocks, and the errors in these blocks."""
    count, found = 0, []
    for first_line, _, block in markdown.split(markdown.read(page))[1]:
        for line, command in shell_commands.command_lines(first_line, block):
            if command.startswith("(gdb)"):
                continue
            if not shell_commands.is_command(command):
                found.append(f"line {line}: begins with no known command: {command}")
                continue
            found += [f"line {line}: there is no {name}" for name in unknown_options(command)]
            for call in shell_commands.calls(line, command):
                count += 1
                if problem := problem_of(call, programs, scratch):
                    found.append(f"line {line}: {problem}")
    return count, found


def wrong_in_text(page: Path, known: set[str]) -> list[str]:
    """Errors for flags, CMake presets and CMake options that a page mentions but that do not exist."""
    found = []
    for line, code in markdown.code_spans(markdown.read(page)):
        found += [f"line {line}: nothing has the flag {flag}"
                  for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", code) if flag not in known]
        found += [f"line {line}: there is no {name}" for name in unknown_options(code)]
    return found


def all_flags(programs: Programs) -> set[str]:
    names = [f"stage{stage}_{job}" for stage in "0123" for job in ("train", "generate", "evaluate", "inspect", "verify", "bench")]
    known = set(FOREIGN_FLAGS)
    for name in [*names, "prepare_data", "convert_checkpoint", "compare_stages", "doctor"]:
        known |= programs.flags(name)
    for script in [*ROOT.glob("scripts/*.*"), *ROOT.glob("scripts/cluster/*.*"), *ROOT.glob("tests/mutations/*.py"),
                   *ROOT.glob("tests/cluster/*.py"), ROOT / "labs/lab", ROOT / "labs/prove", *ROOT.glob("labs/kit/**/*.py"),
                   ROOT / "common/app/configuration.cpp"]:  # flags of earlier versions, which programs explain
        known |= set(re.findall(r"--[a-z][\w-]*", script.read_text(encoding="utf-8")))
    return known


def main() -> int:
    programs = Programs(Path(sys.argv[1]).resolve())
    known = all_flags(programs)
    wrong, calls = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        workplace.make(Path(scratch), ROOT / "data/dummy.txt", programs.run)
        for page in markdown.guides():
            count, found = problems(page, programs, Path(scratch))
            calls += count
            wrong += [(page, problem) for problem in found + wrong_in_text(page, known)]
    return markdown.report(wrong, calls, "calls of our programs and scripts")


if __name__ == "__main__":
    sys.exit(main())
