// Checks which programs of the stages exist.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "tools/doctor/build_facts.h"
#include "tools/doctor/finding.h"

namespace stagegpt {

// Names of the programs in a directory.
std::set<std::string> programs_in(const std::filesystem::path& directory);
// One finding per stage, for programs that were built in `build_directory`.
Findings judge_programs(const std::set<std::string>& names, const BuildFacts& build,
                        const std::filesystem::path& build_directory);

}  // namespace stagegpt
