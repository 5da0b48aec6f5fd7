"""A lab's starter builds, and no check passes on it: starter_test.py BUILD_DIRECTORY LAB. Exit code 77: the tests are not built.

As with INPUTS in tests/CMakeLists.txt, it passes without a run if, since it passed in this folder, nothing has changed in labs/
and in the sources of what it compiles.
"""

import hashlib
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit import checks, starter  # noqa: E402
from kit.lab_file import numbered  # noqa: E402
from kit.overlay import Overlay  # noqa: E402

BUILD, LAB = Path(sys.argv[1]).resolve(), numbered(ROOT, int(sys.argv[2]))


def state(sources: list[Path]) -> str:
    files = [Path(__file__), *sources, *sorted(path for path in (ROOT / "labs").rglob("*") if path.suffix != ".pyc" and path.is_file())]
    return hashlib.sha256(b"".join([repr(sys.argv[1:]).encode(), *(f"{path}\n".encode() + path.read_bytes() for path in files)])).hexdigest()


class Starter(unittest.TestCase):
    def test_it_builds_and_fails_every_check(self):
        with tempfile.TemporaryDirectory() as folder:
            made, output = Path(folder) / "starter", Path(folder) / "build"
            overlay = Overlay(ROOT, BUILD, made, output, "-O0")  # no check gets far
            overlay.clear([written.path for written in LAB.write])
            Starter.passed = Path(f"{state(overlay.sources())}.passed")
            if self.passed.exists():
                print("passed before; since then, nothing has changed in labs/ and in what it compiles")
                return
            starter.fill(ROOT, LAB, made)
            self.assertEqual(overlay.make(LAB.targets()), [])
            for check in LAB.checks:
                with self.subTest(check=str(check)):
                    ranks = check.ranks[-1:] or [None]
                    outcome = checks.run_check(output, check, ranks[0], seconds=120)
                    self.assertIn(outcome.status, ("failed", "crashed"), outcome)
                    self.assertRegex(outcome.message, "is yours to write")
                    print(f"{check}: {outcome.status}: {outcome.message.splitlines()[0][:150]}")


if __name__ == "__main__":
    missing = [target for target in LAB.targets() if not (BUILD / "bin" / target).is_file()]
    if missing:
        print(f"not built: {', '.join(missing)}")
        sys.exit(77)
    ended = unittest.main(argv=sys.argv[:1], exit=False).result
    if not ended.wasSuccessful():
        sys.exit(1)
    Starter.passed.touch()
