"""The tree that submissions are built in: a pristine copy, built once, into which only a lab's `write` files are put.

WORK/tree is the source, and WORK/tree/build its build, which all submissions share one after another. The build lies
where the release preset has it: so a compiler cache finds what another copy of the tree has compiled. WORK/reference
holds the programs of the tree itself, the reference.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kit import building, isolated, symbols, tree
from kit.isolated import Finished, Limits, Place
from kit.lab_file import Check, Count, Lab, LabError, Measure, Trace
from kit.measures import counts_messages
from kit.results import replace_file
from kit.symbols import Symbols

BUILD_SECONDS = 900
MESSAGES = Path(__file__).with_name("messages.c")
# A test program lists its tests when it runs, not when it is built: a build runs nothing of a student's.
CMAKE_FLAGS = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DSTAGEGPT_TESTS=ON",
               "-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST"]

# Files are compiled together, which takes half the time, except those of a lab and those beside them, which may include
# a header of the lab: so the symbols of an object file are those of one source file.
ALONE = """cmake_language(DEFER CALL compile_alone)
function(compile_alone)
  foreach(directory {directories})
    set_source_files_properties({files} DIRECTORY ${{CMAKE_SOURCE_DIR}}/${{directory}}
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()
"""


def default_work(root: Path) -> Path:
    """A directory that other users can reach, because as root the programs of students belong to another user."""
    name = "-".join(root.resolve().parts[1:])
    if os.geteuid() == 0:
        return Path("/var/cache/stagegpt-labs") / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stagegpt-labs" / f"grading-{name}"


@dataclass(frozen=True)
class Reference:
    """What is known of the tree's own solution of a lab."""
    state: str                          # of the sources: a hash
    programs: dict[str, str]            # the names in the lab file, and the programs of the build
    objects: dict[Path, Symbols]        # that depend on the lab's files
    seconds: dict[int, float]           # of the lab file's lines, by their number


class BuildTree:
    def __init__(self, root: Path, work: Path, cmake_flags: list[str]):
        self.root, self.work = root, work
        self.source, self.build = work / "tree", work / "tree/build/release"
        self.reference_bin, self.tools = work / "reference", work / "tools"
        self.flags = [*CMAKE_FLAGS, *cmake_flags]
        try:
            work.mkdir(parents=True, exist_ok=True)
            self.lock = open(work / "lock", "w")
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.lock.close()
            raise LabError(f"{work} is in use by another grading; --work names another directory") from error
        except OSError as error:
            raise LabError(f"--work: {work}: {error.strerror}") from error
        self._expect_reachable()

    def _expect_reachable(self) -> None:
        for directory in [self.work, *self.work.resolve().parents] if os.geteuid() == 0 else []:
            if not directory.stat().st_mode & stat.S_IXOTH:
                raise LabError(f"--work: {self.work}: other users cannot enter {directory}, and programs of students "
                               "run as another user")

    # The reference.

    def prepare(self, lab: Lab, seconds_of: Callable[[Check | Measure], float], say: Callable[[str], None]) -> None:
        """Brings the copy up to date, builds what the lab needs, and keeps its programs and symbols. `seconds_of` runs
        a line of the lab file, `say` is told of the progress. What was prepared before is used again if no source has
        changed."""
        self.lab, self.tests = lab, lab.targets()
        self.tools.mkdir(exist_ok=True)
        files = tree.files(self.root)
        self._copy_source(files)
        state = self._state(files)
        kept = self.work / f"reference-{lab.number}.json"
        try:
            self.reference = _read_reference(json.loads(kept.read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            self.reference = Reference("", {}, {}, {})
        if self.reference.state == state:
            return
        alone = self.tools / "alone.cmake"
        content = self._alone(files)
        if not alone.exists() or alone.read_text() != content:  # ninja then runs CMake again
            alone.write_text(content)
        if not (self.build / "build.ninja").exists():
            say("configuring")
            self._trusted(["cmake", "-S", str(self.source), "-B", str(self.build), f"-DCMAKE_PROJECT_INCLUDE={alone}",
                           *self.flags])
        programs = self._programs()
        targets = [f"bin/{name}" for name in [*self.tests, *dict.fromkeys(programs.values())]]
        say(f"building {len(targets)} programs")
        progress = building.ProgressLine("the reference: building")
        for error in filter(None, building.build(self.build, targets, progress).values()):
            raise LabError(f"the reference does not build: {error.splitlines()[0]}")
        progress.end()
        self.reference_bin.mkdir(exist_ok=True)
        if any(counts_messages(line) for line in lab.measures):
            self._trusted(["mpicc", "-shared", "-fPIC", "-O1", str(MESSAGES), "-o", str(self.counting_library)])
        for name in set(programs.values()):
            shutil.copy2(self.build / "bin" / name, self.reference_bin / name)
        objects = symbols.objects_of(self.build, [self.source / written.path for written in lab.write])
        if not objects:
            raise LabError(f"{lab.file}: no object file of {self.build} depends on the lab's files")
        self.reference = Reference(state, programs, {path: symbols.of_object(path) for path in objects}, {})
        self.reference.seconds.update({line.line: seconds_of(line) for line in [*lab.checks, *lab.measures]})
        replace_file(kept, json.dumps(_written_reference(self.reference)).encode())

    @property
    def counting_library(self) -> Path:
        return self.tools / "libmessages.so"

    def _state(self, files: list[str]) -> str:
        hashed = hashlib.sha256(" ".join(self.flags).encode())
        for name in files:
            hashed.update(name.encode() + b"\0" + hashlib.sha256((self.root / name).read_bytes()).digest())
        return hashed.hexdigest()

    def _copy_source(self, files: list[str]) -> None:
        wanted = set(files)
        for directory, names, found in os.walk(self.source):
            if directory == str(self.source) and "build" in names:
                names.remove("build")
            for old in (Path(directory) / name for name in found):
                if str(old.relative_to(self.source)) not in wanted:
                    old.unlink()
        for name in files:
            copy = self.source / name
            content = (self.root / name).read_bytes()
            if not copy.is_file() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
            copy.chmod(0o755 if os.access(self.root / name, os.X_OK) else 0o644)

    def _alone(self, files: list[str]) -> str:
        """For CMake: the source files that are compiled alone."""
        beside = {Path(written.path).parent for written in self.lab.write}
        folders = (beside | {folder.parent for folder in beside}) - {Path(), Path("common")}
        chosen = [Path(name) for name in files if name.endswith((".cpp", ".cu")) and Path(name).parent in folders]
        directories = {path.parts[0] for path in chosen if (self.source / path.parts[0] / "CMakeLists.txt").exists()}
        return ALONE.format(directories=" ".join([".", *sorted(directories)]),
                            files=" ".join(f"${{CMAKE_SOURCE_DIR}}/{path}" for path in chosen))

    def _programs(self) -> dict[str, str]:
        """The programs that lines of the lab run, and compare_stages for traces."""
        command = ["ninja", "-C", str(self.build), "-t", "targets", "all"]
        listed = subprocess.run(command, capture_output=True, text=True).stdout
        known = set(re.findall(r"^bin/(\w+): ", listed, re.MULTILINE))
        for name in self.tests:
            if name not in known:
                raise LabError(f"{self.lab.file}: the build has no test program {name}")
        found = {}
        for name in [name for line in self.lab.measures for name in programs_of(line)]:
            fitting = [one for one in (name, f"{name}_train_emulated", f"{name}_train") if one in known]
            if not fitting:
                raise LabError(f"{self.lab.file}: the build has no program {name}")
            found[name] = fitting[0]
            counting = fitting[0].removesuffix("_emulated") + "_profiled"
            if fitting[0].endswith("_emulated") and counting in known:  # the one that counts accesses
                found[counting] = counting
        return found

    def _trusted(self, command: list[str]) -> None:
        """Runs a command of the reference's build."""
        finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace")
        if finished.returncode != 0:
            raise LabError(f"the reference does not build: {building.first_error(finished.stdout).splitlines()[0]}")

    # Submissions.

    def put(self, files: dict[str, bytes]) -> None:
        """Replaces the lab's files. All other files are those of the tree."""
        for name, content in files.items():
            self._write(name, content)

    def _write(self, name: str, content: bytes) -> None:
        path = self.source / name
        if path.read_bytes() != content:
            path.write_bytes(content)

    def build_all(self, place: Place, limits: Limits) -> Finished:
        """Builds a submission. A target that cannot be built has no program afterwards."""
        began = time.time()
        targets = [*self.tests, *self.reference.programs.values()]
        for name in targets:
            (self.build / "bin" / name).unlink(missing_ok=True)
        command = ["ninja", "-C", str(self.build), "-k", "0", *(f"bin/{name}" for name in targets)]
        finished = isolated.run(command, place, limits)
        if finished.stopped:
            self._forget_since(began)
        return finished

    def _forget_since(self, began: float) -> None:
        """After a build that was killed, its files may be incomplete although they look new."""
        for directory, _, names in os.walk(self.build):
            for name in names:
                path = Path(directory) / name
                if name.endswith((".o", ".a", ".so")) and path.lstat().st_mtime >= began - 1:
                    path.unlink()

    def is_built(self, line: Check | Measure) -> bool:
        """Whether the programs of a line have been built."""
        names = ([line.target] if isinstance(line, Check)
                 else [self.reference.programs[name] for name in programs_of(line)])
        return all((self.build / "bin" / name).is_file() for name in names)


def programs_of(line: Measure) -> list[str]:
    """The programs that a line names."""
    if isinstance(line, Count):
        return line.command[:1]
    return [line.program, *(["compare_stages"] if isinstance(line, Trace) else [])]


def _written_reference(reference: Reference) -> dict:
    return {"state": reference.state, "programs": reference.programs, "seconds": reference.seconds,
            "objects": {str(path): [sorted(one.undefined), sorted(one.defined)]
                        for path, one in reference.objects.items()}}


def _read_reference(written: dict) -> Reference:
    objects = {Path(path): Symbols(frozenset(undefined), frozenset(defined))
               for path, (undefined, defined) in written["objects"].items()}
    seconds = {int(line): seconds for line, seconds in written["seconds"].items()}
    return Reference(written["state"], written["programs"], objects, seconds)
