// NCCL, which stage 3 is built with where it is there.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/finding.h"

namespace stagegpt {

// Of NCCL's number for its version: 21805 is 2.18.5. Before 2.9 it was written otherwise: 2804 is 2.8.4.
std::string nccl_version_text(int number);

// The number of the library's version; nothing where it cannot be loaded.
std::optional<int> ask_nccl();
Finding judge_nccl(std::optional<int> version, std::size_t gpus);

}  // namespace stagegpt
