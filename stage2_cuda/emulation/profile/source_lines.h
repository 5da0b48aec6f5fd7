// The source lines of instructions, from the debug information of this program.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stage2_cuda/emulation/profile/counts.h"

namespace stagegpt::gpu::emulation {

struct SourceLine {
  std::string file;  // "stage2_cuda/kernels/layernorm.cuh": from the source tree, if it is there
  int line = 0;
  bool operator==(const SourceLine&) const = default;
  auto operator<=>(const SourceLine&) const = default;
};

// The line of the kernel, then the lines of the functions that are called there and inlined, to that of the
// access. The emulator's own lines are left out. Empty if unknown.
using LineChain = std::vector<SourceLine>;

// Runs addr2line (binutils) once for many instructions. If it cannot be run, nothing is known.
std::map<Instruction, LineChain> lines_of(const std::vector<Instruction>& callers);

// The line of a file of the source tree. `path` may be absolute.
SourceLine source_line(std::string_view path, int line);

// "layernorm.cuh:45 > vector.cuh:39".
std::string to_string(const LineChain& chain);

// The lines of a file of the source tree; none if it is not there.
std::vector<std::string> text_of(const std::string& file);

// Neighbouring lines of a file.
struct Excerpt {
  std::string file;
  int first = 1;  // the number of the first line
  std::vector<std::string> lines;
};

// The text around some lines, from the first to the last one of a file, in several parts if many lines lie in
// between. A line that is not in the source tree is empty.
std::vector<Excerpt> excerpts_of(const std::set<SourceLine>& lines);

}  // namespace stagegpt::gpu::emulation
