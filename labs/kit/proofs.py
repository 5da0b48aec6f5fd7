"""What labs/prove proves about each lab: its starter builds, no check passes on it, every function is needed.

A variant is built from the objects of the tree's own build: only what differs is compiled.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kit import building, checks, cutter, starter
from kit.lab_file import Check, Cut, Lab, LabError, WrittenFile
from kit.overlay import Overlay

SECONDS = 300.0  # the limit of one test program


@dataclass
class Proof:
    """What has been found for one lab; `wrong` lists what does not hold."""
    lab: Lab
    targets_built: int = 0
    checks_failed: int = 0   # on the starter
    points: int = 0          # of the restored tree
    cuts_needed: int = 0     # functions without which points are lost
    seconds: float = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def all_points(self) -> int:
        return sum(check.points for check in self.lab.checks)

    @property
    def cuts(self) -> list[tuple[WrittenFile, Cut]]:
        return [(written, cut) for written in self.lab.write for cut in written.cuts]


class Prover:
    """Builds variants of the tree at `root`, beside its build directory: each compiles only what differs."""

    def __init__(self, root: Path, build: Path, folder: Path, say: Callable[[str], None]):
        self.root, self.build, self.say = root, building.configure(root, build), say
        self.changed = folder / "starter"
        self.overlay = Overlay(root, self.build, self.changed, folder / "build")

    def begin(self, lab: Lab) -> None:
        """Builds the tests of the tree itself, and makes the starter."""
        begun = time.monotonic()
        building.build_all(self.build, lab.targets(), f"lab {lab.number}: building the original")
        self.say(f"lab {lab.number}: the original is built ({time.monotonic() - begun:.0f} s)")
        shutil.rmtree(self.changed, ignore_errors=True)
        starter.fill(self.root, lab, self.changed)

    def prove_starter(self, proof: Proof, fails: bool = True) -> None:
        """(i) the starter can be configured, and each of its targets builds; (ii) no check passes on it."""
        lab = proof.lab
        if wrong := self._configured(lab):
            self._wrong(proof, f"the starter cannot be configured: {wrong}")
        begun = time.monotonic()
        self.overlay.clear([written.path for written in lab.write])
        for target in lab.targets():
            errors = self.overlay.make([target])
            proof.targets_built += not errors
            if errors:
                self._wrong(proof, f"the starter's {target} does not build: {building.first_error(errors[0])}")
        self.say(f"lab {lab.number}: the starter is built ({time.monotonic() - begun:.0f} s)")
        for check in lab.checks if fails else []:
            outcome = self._run(lab, check, self.overlay.directory)
            proof.checks_failed += not outcome.passed
            if outcome.passed:
                self._wrong(proof, f"passes on the starter: {check}")
            elif outcome.status == "hung":
                self._wrong(proof, f"hangs on the starter: {check}: {outcome.message}")

    def prove_restored(self, proof: Proof) -> None:
        """(iii) the restored tree is the original, and that has all points."""
        lab = proof.lab
        texts = starter.students_files(lab)
        for written, cut in proof.cuts:
            texts[written.path] = cutter.restore(texts[written.path], self._original(written), cut, written.path)
        for written in lab.write:
            if texts[written.path] != self._original(written):
                self._wrong(proof, f"{written.path}: the restored file is not the original")
        for check in lab.checks:
            outcome = self._run(lab, check, self.build)
            proof.points += check.points if outcome.passed else 0
            if not outcome.passed:
                self._wrong(proof, f"does not pass on the original: {check}: {outcome.status}, {outcome.message}")

    def prove_single_cuts(self, proof: Proof) -> None:
        """(iii) without any one function, points are lost."""
        for written in proof.lab.write:
            (self.changed / written.path).write_text(self._original(written))
        for written, cut in proof.cuts:
            begun = time.monotonic()
            (self.changed / written.path).write_text(cutter.cut(self._original(written), [cut], written.path))
            self.overlay.clear([written.path])
            if loses := self._first_lost(proof, cut):
                proof.cuts_needed += 1
                self.say(f"lab {proof.lab.number}: without {cut.label} {loses} ({time.monotonic() - begun:.0f} s)")
            else:
                self._wrong(proof, f"no points are lost without {cut.label}")
            (self.changed / written.path).write_text(self._original(written))

    def _configured(self, lab: Lab) -> str:
        """Configures the starter's own build. Returns what is wrong, or an empty text."""
        try:
            own = building.configure(self.changed)
        except LabError as error:
            return str(error)
        ended = subprocess.run(["ninja", "-C", own, "-n", *lab.targets()], capture_output=True, text=True, check=False)
        shutil.rmtree(self.changed / "build")
        return "" if ended.returncode == 0 else ended.stdout[-300:]

    def _first_lost(self, proof: Proof, cut: Cut) -> str:
        """The first check that does not pass, or an empty text. Its program is built just before."""
        for check in proof.lab.checks:
            if errors := self.overlay.make([check.target]):
                error = building.first_error(errors[0])
                self._wrong(proof, f"{check.target} does not build without {cut.label}: {error}")
                return f"{check.target} does not build"
            outcome = checks.run_on_all(self.overlay.directory, check, seconds=SECONDS)
            if not outcome.passed:
                return f"{outcome.status}: {check}"
        return ""

    def _run(self, lab: Lab, check: Check, build: Path) -> checks.Outcome:
        outcome = checks.run_on_all(build, check, seconds=SECONDS)
        first = outcome.message.splitlines()[0] if outcome.message else ""
        self.say(f"lab {lab.number}: {outcome.status} {check} ({outcome.seconds:.1f} s) {first[:120]}")
        return outcome

    def _wrong(self, proof: Proof, what: str) -> None:
        proof.wrong.append(what)
        self.say(f"lab {proof.lab.number}: WRONG: {what}")

    def _original(self, written: WrittenFile) -> str:
        return (self.root / written.path).read_text()


def table(proofs: list[Proof]) -> str:
    """The results, a line a lab."""
    lines = [f"{'lab':<14} {'starter builds':>14} {'checks fail':>12} {'restored':>12} {'cuts needed':>12} "
             f"{'seconds':>8}"]
    for proof in proofs:
        lines.append(f"{proof.lab.name:<14} {_of(proof.targets_built, len(proof.lab.targets())):>14} "
                     f"{_of(proof.checks_failed, len(proof.lab.checks)):>12} {_of(proof.points, proof.all_points):>12} "
                     f"{_of(proof.cuts_needed, len(proof.cuts)):>12} {proof.seconds:>8.0f}")
    return "\n".join(lines)


def _of(found: int, expected: int) -> str:
    return f"{found} of {expected}"
