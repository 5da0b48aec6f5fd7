// Checks how these programs were built, and which of them exist.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct BuildFacts {
  std::string compiler;    // "GCC 12.2.0"
  std::string build_type;  // CMake's: "Release"
  bool native = true;      // compiled for the processor of the build machine
  bool sanitized = false;
  std::string processor = {};                   // "x86-64-v3": compiled for it; empty: for any
  std::string nvcc = {};                        // version of nvcc; empty if there was none
  std::vector<std::string> architectures = {};  // CMake's: "80-real", "90"
};

BuildFacts build_facts();
Finding judge_build(const BuildFacts& build);

// Names of the programs in a directory.
std::set<std::string> programs_in(const std::filesystem::path& directory);
// One finding per stage, for programs that were built in `build_directory`.
Findings judge_programs(const std::set<std::string>& names, const BuildFacts& build,
                        const std::filesystem::path& build_directory);

}  // namespace stagegpt
