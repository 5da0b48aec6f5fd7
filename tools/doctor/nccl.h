// Checks NCCL, which stage 3 uses if it was found by the build.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/finding.h"

namespace stagegpt {

// NCCL's version number as text: 21805 is 2.18.5; before 2.9 the format was different: 2804 is 2.8.4.
std::string nccl_version_text(int number);

// The library's version number; empty if it cannot be loaded.
std::optional<int> ask_nccl();
Finding judge_nccl(std::optional<int> version, std::size_t gpus);

}  // namespace stagegpt
