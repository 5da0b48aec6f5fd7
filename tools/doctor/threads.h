// OpenMP's threads, and OpenBLAS, which multiplies matrices with them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/finding.h"

namespace stagegpt {

struct ThreadFacts {
  int cores = 1;        // OpenMP's: as many threads a program takes without --threads
  int limit = 1 << 30;  // OMP_THREAD_LIMIT
  // Variables of the environment that are set, of those that change what threads do.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

ThreadFacts thread_facts();
Finding judge_threads(const ThreadFacts& facts);

// `description` of the library, or why it cannot be loaded.
Finding judge_blas(bool loaded, const std::string& description);
Finding examine_blas();

}  // namespace stagegpt
