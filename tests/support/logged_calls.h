// The log that fault_injection.cpp writes: the system calls of a run, in order; each line is "N name path".
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/checkpoint/run_directory.h"

namespace stagegpt::test {

inline std::vector<std::string> logged_calls(const std::filesystem::path& path) {
  std::ifstream log(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(line);
  return lines;
}

// For each call, the step of the newest checkpoint that must survive a fault in this call. Checkpoints are at
// steps 1, 2, ….
inline std::vector<std::int64_t> durable_steps(const std::vector<std::string>& calls) {
  std::vector<std::int64_t> steps;
  std::int64_t renamed = 0, durable = 0;
  for (const std::string& call : calls) {
    steps.push_back(durable);
    if (call.find(" rename ") != call.npos && call.ends_with("/" + checkpoint_name(renamed + 1))) ++renamed;
    if (call.find(" fsync ") != call.npos && call.ends_with("/checkpoints")) durable = renamed;
  }
  return steps;
}

}  // namespace stagegpt::test
