"""A lab's starter builds, and no check passes on it: starter_test.py BUILD_DIRECTORY LAB. Exit code 77: the tests are not built.

As with INPUTS in tests/CMakeLists.txt, it passes without a run if it has passed in this build before and nothing has changed since
in labs/, in tests/golden and in the sources of its tests and of what it compiles.
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


def state(overlay: Overlay) -> str:
    """A hash of all that the test depends on, but for libraries whose sources are as they are in the build."""
    commands, sources = overlay.made_from(LAB.targets())
    files = [path for folder in (ROOT / "labs", ROOT / "tests/golden") for path in folder.rglob("*") if path.suffix != ".pyc"]
    parts = [repr(sys.argv).encode(), commands.encode()]
    parts += [f"{path}\n".encode() + path.read_bytes() for path in sorted({Path(__file__), *sources, *files}) if path.is_file()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


class Starter(unittest.TestCase):
    def test_it_builds_and_fails_every_check(self):
        with tempfile.TemporaryDirectory() as folder:
            made, output = Path(folder) / "starter", Path(folder) / "build"
            overlay = Overlay(ROOT, BUILD, made, output, "-O0")  # no check gets far
            overlay.clear([written.path for written in LAB.write])
            Starter.passed = BUILD / "tests/labs" / f"{state(overlay)}.passed"
            if self.passed.exists():
                print("passed before; since then, nothing has changed that it reads")
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
