"""A lab's starter builds, and no check passes on it: starter_test.py BUILD_DIRECTORY LAB. Exit code 77: the tests are not built."""

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


class Starter(unittest.TestCase):
    def test_it_builds_and_fails_every_check(self):
        with tempfile.TemporaryDirectory() as folder:
            made, output = Path(folder) / "starter", Path(folder) / "build"
            overlay = Overlay(ROOT, BUILD, made, output, "-O0")  # no check gets far
            overlay.clear([written.path for written in LAB.write])
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
    unittest.main(argv=sys.argv[:1])
