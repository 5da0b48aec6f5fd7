"""A small tree with one lab of two files, in place of the product: it builds in a second."""

import shutil
from pathlib import Path

LABS = Path(__file__).resolve().parents[3] / "labs"

CMAKE = """cmake_minimum_required(VERSION 3.25)
project(fake LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_FLAGS_RELEASE -O0)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
include_directories(${CMAKE_SOURCE_DIR})
add_library(ring STATIC stage1/ring.cpp stage1/empty.cpp)
foreach(program ring_tests other_tests train compare_stages)
  add_executable(${program} tests/${program}.cpp)
endforeach()
target_link_libraries(ring_tests ring)
target_link_libraries(train ring)
"""

LAB = """title  A ring
write  stage1/ring.cpp
  cut  int ring_sum(const int* values, int count)
       The sum of all values.
write  stage1/empty.cpp
  cut  int empty_sum()
check  6  ring_tests   Ring.sums
hint   Where does the sum begin?
check  4  ring_tests   Ring.is_empty
check  2  other_tests  Other.passes
trace  8  train
"""

HEADER = """#pragma once
namespace stagegpt { int ring_sum(const int* values, int count); int empty_sum(); }
"""

SOLUTION = """#include "stage1/ring.h"
namespace stagegpt {
int ring_sum(const int* values, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}
}
"""

EMPTY = """#include "stage1/ring.h"
namespace stagegpt {
int empty_sum() { return 0; }
}
"""

# Prints what GoogleTest prints.
TESTS = """#include <cstdio>
#include <cstring>
#include "stage1/ring.h"
static int test(const char* filter, const char* name, int expected, int count) {
  if (std::strstr(filter, name) == nullptr) return 0;
  const int values[] = {1, 2, 3};
  std::printf("[ RUN      ] %s\\n", name);
  std::fflush(stdout);
  const bool right = (count > 0 ? stagegpt::ring_sum(values, count) : stagegpt::empty_sum()) == expected;
  if (!right) std::printf("tests/ring_tests.cpp:9: Failure\\nthe sum of %d values is wrong\\n", count);
  std::printf("%s %s (0 ms)\\n[==========] 1 test from 1 test suite ran. (0 ms total)\\n",
              right ? "[       OK ]" : "[  FAILED  ]", name);
  return right ? 0 : 1;
}
int main(int, char** argv) { return test(argv[1], "Ring.sums", 6, 3) + test(argv[1], "Ring.is_empty", 0, 0); }
"""

OTHER = """#include <cstdio>
int main() { std::puts("[==========] 1 test from 1 test suite ran. (0 ms total)"); }
"""

# A trace is the sum of three numbers that follow from the seed.
TRAIN = """#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include "stage1/ring.h"
int main(int argc, char** argv) {
  std::filesystem::path run;
  int seed = 0;
  for (int i = 1; i + 1 < argc; ++i) {
    if (!std::strcmp(argv[i], "--run-dir")) run = argv[i + 1];
    if (!std::strcmp(argv[i], "--seed")) seed = std::atoi(argv[i + 1]) % 1000;
  }
  std::filesystem::create_directories(run / "traces");
  const int values[] = {seed, 2 * seed, 7};
  std::ofstream(run / "traces/step_00000001.safetensors") << stagegpt::ring_sum(values, 3);
  std::printf("{\\"sums\\": 1, \\"first_step\\": {\\"loss\\": %d}}\\n", stagegpt::ring_sum(values, 3));
}
"""

COMPARE = """#include <cstdio>
#include <fstream>
#include <string>
static std::string read(std::string directory) {
  std::string text;
  std::ifstream(directory + "/step_00000001.safetensors") >> text;
  return text;
}
int main(int, char** argv) {
  const bool same = read(argv[2]) == read(argv[3]);
  std::puts(same ? "1 tensors agree" : "step 1: the loss differs");
  return same ? 0 : 1;
}
"""

FILES = {"CMakeLists.txt": CMAKE, "labs/4_ring/lab": LAB, "stage1/ring.h": HEADER, "stage1/ring.cpp": SOLUTION,
         "stage1/empty.cpp": EMPTY, "labs/kit/todo.h": (LABS / "kit/todo.h").read_text(),
         "tests/ring_tests.cpp": TESTS, "tests/other_tests.cpp": OTHER, "tests/train.cpp": TRAIN, "tests/compare_stages.cpp": COMPARE}


def make(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def with_body(body: str, above: str = "") -> str:
    """The student's file with another body of the function."""
    return (f'#include "stage1/ring.h"\n{above}\nnamespace stagegpt {{\n'
            f"int ring_sum([[maybe_unused]] const int* values, [[maybe_unused]] int count) {{\n{body}\n}}\n}}\n")
