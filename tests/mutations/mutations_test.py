"""Runs the generator of mutants on a small tree: what compiles, is killed, survives or is gone is known. Run by CTest."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from edits import edits
from mutants import draw

HERE = Path(__file__).resolve().parent

TREE = {
    "CMakePresets.json": """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",
                             "binaryDir": "${sourceDir}/build/release"}]}""",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)\nproject(Small LANGUAGES CXX)\nset(CMAKE_CXX_STANDARD 20)
                         include_directories(.)\nadd_executable(small small.cpp)\nenable_testing()
                         add_test(NAME Right COMMAND small)""",
    "common/tested.h": """#pragma once
namespace a {
constexpr int kOne = 1;  // outside of functions: no mutants, and { none here
template <class T = int>
constexpr T sum(T x, T y) { return x + y; }
static_assert(sum(1, 2) == 3);
struct Box {
  int side, area;
  explicit Box(int n) : side{n}, area(n * n) { if (n < 0) { side = -1; } }
  bool operator<(const Box& other) const { return side < other.side; }
};
}  // namespace a
""",
    "common/untested.h": "inline int untested(int x) {\n  if (x > 4) return x;\n  return 3;\n}\n",
    "small.cpp": """#include "common/tested.h"\n#include "common/untested.h"\nint main(int argc, char**) {
  untested(argc);
  return !(a::sum(argc, 2) == 3 && !(a::Box(1) < a::Box(1)) && a::Box(0).side == 0 && a::Box(3).side == 3 &&
           a::Box(-2).side == -1 && a::Box(3).area == 9); }""",
}


class Generator(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.tree = Path(scratch.name) / "tree"
        for name, text in TREE.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        subprocess.run(["git", "init", "-q", self.tree], check=True)

    def test_what_is_killed_survives_does_not_compile_and_is_gone(self):
        entries = draw(self.tree, 3, 25)  # all that there are
        self.assertEqual(entries[:5], draw(self.tree, 3, 5))
        line = TREE["common/tested.h"].split("\n")[4]
        own = {"file": "common/tested.h", "line": 5, "before": line, "after": line.replace("x + y", "z"), "near": []}
        (self.tree / "list.json").write_text(json.dumps([*entries, own, {**own, "before": "return x + z;"}]))
        tested = self.tree / "common/tested.h"
        tested.write_text("// One line more.\n" + tested.read_text())
        command = [sys.executable, HERE / "run.py", "--tree", self.tree, "--list", self.tree / "list.json"]
        for _ in range(2):  # the second time, all is done
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertIn("drawn: 27, killed: 14, survived: 11, does not compile: 1, gone: 1\n"
                          "kill rate: 56.0 % of the 25 that were run\n", ended.stdout, ended.stderr)
            self.assertEqual(ended.returncode, 1)
        survivors = json.loads((self.tree / "build/mutants/survivors.json").read_text())
        self.assertEqual(sorted(map(str, survivors)), sorted(str(e) for e in entries if e["file"] == "common/untested.h"))

    def test_each_kind_of_edit(self):
        source = "void f() { if (a && !b) g(x, y + 1); for (int i = 0; i < n; ++i) v[i] -= std::min(p, q); break; A b(3); }"
        found = {(source[edit.start:edit.end], edit.text) for edit in edits(source)}
        self.assertLessEqual({("&&", "||"), ("!", ""), ("a && !b", "!(a && !b)"), ("a && !b", "true"), ("x, y + 1", "y + 1, x"),
                              ("1", "(1 - 1)"), ("0", "(0 + 1)"), ("<", "<="), ("i < n", "false"), ("++", "--"), ("-=", "+="),
                              ("min", "max"), ("v[i] -= std::min(p, q);", ";"), ("break;", ";")}, found)
        self.assertNotIn(("A b(3);", ";"), found)


if __name__ == "__main__":
    unittest.main()
