// Checks the processor: the cores that this process may use, and whether it has the instructions for which
// the programs were compiled.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct InstructionSet {
  std::string name;  // "AVX-512"
  bool compiled_for = false, here = false;
};

struct ProcessorFacts {
  std::string model;
  int cores = 1;                     // number that this process may use
  std::optional<double> quota = {};  // of a container, in cores
  std::vector<InstructionSet> instructions = {};
};

ProcessorFacts processor_facts();
Findings judge_processor(const ProcessorFacts& facts);

struct ThreadFacts {
  int cores = 1;        // omp_get_num_procs()
  int limit = 1 << 30;  // OMP_THREAD_LIMIT
  // Environment variables that are set and affect threads.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

ThreadFacts thread_facts();
Finding judge_threads(const ThreadFacts& facts);

// `description`: that of the library, or why it cannot be loaded.
Finding judge_blas(bool loaded, const std::string& description);
Finding examine_blas();

}  // namespace stagegpt
