"""The first checks of labs 2, 4 and 5: the commands of their hand-outs, on the tree and on a starter. Each compiles one file."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit import lab_file, starter  # noqa: E402

# The exercise of lab 5: solved, with a block too few, and open, as the environment says when it runs. One compilation serves all.
EXERCISE = """  const char* const exercise = std::getenv("EXERCISE");
  if (exercise) {
    copy_to_device(device_in, in, bytes, nullptr);
    const dim3 grid = *exercise == 's' ? blocks(n, 64) : dim3(n / 64);
    launch<sums_of_warps>(grid, 64, 0, nullptr, device_out, static_cast<const float*>(device_in), n);
    copy_to_host(out, device_out, bytes, nullptr);
  }
"""


class FirstChecks(unittest.TestCase):
    def first(self, number, cut=False):
        """Compiles the check of a lab, with its functions cut out or not. Returns a function that runs it with an exercise, and
        returns its exit code and what it says."""
        lab = lab_file.numbered(ROOT, number)
        command = re.search(r"^(g\+\+ .* labs/\S+/first.cpp.*) -o first && ./first$", (lab.directory / "HANDOUT.md").read_text(),
                            re.MULTILINE).group(1)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = temporary.name
        for path, text in (starter.students_files(lab) if cut else {}).items():
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, path).write_text(text)
        source, program = Path(folder, "first.cpp"), Path(folder, "first")
        source.write_text((lab.directory / "first.cpp").read_text().replace("  deallocate(device_in);", EXERCISE + "  deallocate(device_in);"))
        words = command.replace("-I.", f"-I{folder} -I.").split()
        words = [str(source) if word.endswith("/first.cpp") else word for word in words]
        subprocess.run([*words, "-o", program], cwd=ROOT, check=True)

        def run(exercise="solved"):
            environment = {**os.environ, "OMP_NUM_THREADS": "1"} | ({"EXERCISE": exercise} if exercise else {})
            ended = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
            return ended.returncode, ended.stdout.strip()
        return run

    def test_pass_on_the_tree_only(self):
        for number, right, label in [(2, "right: adamw_elements", "2.6 adamw_elements"), (4, "right: divisible_ranges", "4.10 divisible_ranges"),
                                     (5, "right: the launch, both copies, and warp_sum", "5.1 warp_sum")]:
            with self.subTest(lab=number):
                run = self.first(number)
                self.assertEqual(run(), (0, right))
                code, said = self.first(number, cut=True)()
                self.assertEqual(code, 1)
                self.assertIn(f"{label} is yours to write", said)
        # The exercise of lab 5 says what is missing.
        for exercise, said in [("", "element 0 is -1, not 32: the host's memory was not written"),
                               ("a block too few", "element 64 is nan, not 32: no thread has written it")]:
            with self.subTest(said=said):
                code, found = run(exercise)
                self.assertEqual(code, 1)
                self.assertIn(said, found.replace("-nan", "nan"))


if __name__ == "__main__":
    unittest.main()
