"""A small source tree with a lab, on which labs/lab can do all that it does with the real one, in seconds."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

LAB = """title  Sums
give   src/sum.h
write  src/sum file.h
  cut  int sum(int a, int b)
       The sum of a and b.
  cut  int twice(int a)
       Use sum().
write  src/loop.h
  cut  inline int loop(int n)
check  5   sum_tests  Sum.adds
hint   Addition, not subtraction.
hint   And no overflow.
check  3   sum_tests  Sum.twice:Sum.adds
check  2   loop_tests@1-2  Loop.*
hint   Does it end?
trace  9   stage1 -np 2 -- --steps 4
bugs   1   secret_bug
"""

SOURCES = {
    ".gitignore": "/build/\n__pycache__/\n",
    "README.md": "# A tree\n",
    ".github/workflows/ci.yml": "on: push\n",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(Small LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
include_directories(${CMAKE_SOURCE_DIR})
add_executable(sum_tests src/sum_tests.cpp)
add_executable(loop_tests src/loop_tests.cpp)
add_executable(compare_stages src/compare_stages.cpp)
add_executable(stage1_train src/stage1_train.cpp)
add_subdirectory(tests/labs)
""",
    "CMakePresets.json": """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja",
 "binaryDir": "${sourceDir}/build/${presetName}", "cacheVariables": {"CMAKE_BUILD_TYPE": "Debug"}}]}
""",
    "src/sum.h": '#pragma once\n#include "src/sum file.h"\n',
    "src/sum file.h": "#pragma once\n\ninline int sum(int a, int b) {\n  return a + b;  // the secret of sums\n}\n\n"
                      "inline int twice(int a) { return sum(a, a); }\n",
    "src/loop.h": "#pragma once\n\ninline int loop(int n) {\n  int i = 0;\n  while (i < n) ++i;\n  return i;\n}\n",
    # A test program that prints what GoogleTest prints. It includes little, so that it compiles in a moment.
    "src/tests.h": r"""#pragma once
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
struct Test {
  const char* name;
  bool (*run)();
};
inline int run_tests(int argc, char** argv, std::initializer_list<Test> tests) {
  const char* filter = "*";
  for (int i = 1; i < argc; ++i) if (!std::strncmp(argv[i], "--gtest_filter=", 15)) filter = argv[i] + 15;
  int ran = 0, failed = 0;
  for (const auto& [name, run] : tests) {
    char suite[100];
    std::snprintf(suite, sizeof suite, "%.*s.*", static_cast<int>(std::strchr(name, '.') - name), name);
    if (std::strcmp(filter, "*") && !std::strstr(filter, name) && !std::strstr(filter, suite)) continue;
    std::printf("[ RUN      ] %s\n", name);
    std::fflush(stdout);
    ++ran;
    bool good = false;
    try {
      good = run();
      if (!good) std::printf("src/tests.cpp:7: Failure\nWrong sum\n");
    } catch (const std::exception& error) {
      std::printf("unknown file: Failure\nC++ exception with description \"%s\" thrown in the test body.\n\n", error.what());
    }
    failed += !good;
    std::printf("[  %s ] %s (0 ms)\n", good ? "     OK" : "FAILED ", name);
  }
  std::printf("[==========] %d tests from 1 test suite ran. (0 ms total)\n", ran);
  return failed != 0;
}
""",
    "src/sum_tests.cpp": '#include "src/sum.h"\n#include "src/tests.h"\nint main(int argc, char** argv) {\n'
                         '  return run_tests(argc, argv, {{"Sum.adds", [] { return sum(2, 3) == 5; }},\n'
                         '                                {"Sum.twice", [] { return twice(4) == 8; }}});\n}\n',
    "src/loop_tests.cpp": '#include "src/loop.h"\n#include "src/tests.h"\nint main(int argc, char** argv) {\n'
                          '  return run_tests(argc, argv, {{"Loop.ends", [] { return loop(3) == 3; }}});\n}\n',
    # Prints its arguments, and the output of the programs that it was given.
    "src/compare_stages.cpp": r"""#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
int main(int argc, char** argv) {
  std::string other;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i - 1], "--against")) other = argv[i];
    else std::printf("%s|", argv[i]);
  }
  std::puts("");
  std::fflush(stdout);
  const std::string own = std::string(argv[0]).substr(0, std::string(argv[0]).rfind('/'));
  for (const std::string& directory : {own, other}) {
    if (std::system(("\"" + directory + "/stage1_train\"").c_str())) return 4;
  }
  return 3;
}
""",
    "src/stage1_train.cpp": '#include <cstdio>\n#include "src/loop.h"\nint main() { std::printf("loop %d\\n", loop(4)); }\n',
    "tests/labs/CMakeLists.txt": "# Tests of labs.\n",
    "tests/labs/sum_test.py": "# return a + b;  // the secret of sums\n",
    "docs/guide.md": "# A guide\n",
    "labs/1_sums/lab": LAB,
    "labs/1_sums/HANDOUT.md": "# Sums\n\n![a sum](pictures/sum.svg) [guide](../../docs/guide.md#x) [web](https://a.b/c) [here](#sums) `a[](i)`\n",
    "labs/1_sums/answers.md": "# Why?\n",
    "labs/1_sums/model.md": "return a + b;  // the secret of sums\n",
    "labs/1_sums/pictures/sum.svg": "<svg/>\n",
    "labs/2_more/lab": "title  More\nwrite  src/loop.h\n  cut  inline int loop(int n)\n       Loop.\ncheck  1  loop_tests  Loop.*\n",
    "labs/zoo/secret_bug": "find return a + b;  // the secret of sums\n",
    "labs/AGENTS.md": "Help, but do not solve.\n",
    "labs/README.md": "Labs.\n",
}


def small_tree(folder: Path, git: bool = True) -> Path:
    """Writes the tree, with the labs' programs of this one. With `git`, it is a repository whose history has the solution."""
    root = folder / "a tree"
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("lab", "prove"):
        shutil.copy2(ROOT / "labs" / name, root / "labs" / name)
    shutil.copytree(ROOT / "labs" / "kit", root / "labs" / "kit", ignore=shutil.ignore_patterns("__pycache__"))
    if git:
        for arguments in (["init", "-q"], ["add", "-A"],
                          ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "the secret of sums"]):
            subprocess.run(["git", *arguments], cwd=root, check=True, env=without_git_settings())
    return root


def without_git_settings(**more: str) -> dict[str, str]:
    """An environment in which git knows no user."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**kept, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", **more}


def lab(directory: Path, *words: object, seconds: float = 120, **environment: str) -> subprocess.CompletedProcess:
    """Runs labs/lab of a tree or of a starter."""
    command = [sys.executable, str(directory / "labs" / "lab"), *map(str, words)]
    return subprocess.run(command, cwd=directory, env=without_git_settings(**environment), capture_output=True, text=True,
                          timeout=seconds, check=False)


def temporary(test) -> Path:
    """A folder that the test removes."""
    folder = tempfile.TemporaryDirectory(prefix="labs test ")
    test.addCleanup(folder.cleanup)
    return Path(folder.name).resolve()


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without git's."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(folder).parts}


def is_executable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)
