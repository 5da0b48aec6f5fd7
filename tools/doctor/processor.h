// The processor: which cores we may use, and whether it knows the instructions that the programs were
// compiled to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct InstructionSet {
  std::string name;  // "AVX-512"
  bool compiled_for = false, here = false;
};

struct ProcessorFacts {
  std::string model;
  int cores = 1;                     // that this process may run on
  std::optional<double> quota = {};  // of a container, in cores
  std::vector<InstructionSet> instructions = {};
};

// "model name" of /proc/cpuinfo; empty where there is none.
std::string parse_processor_model(std::string_view cpuinfo);

ProcessorFacts processor_facts();
Findings judge_processor(const ProcessorFacts& facts);

}  // namespace stagegpt
