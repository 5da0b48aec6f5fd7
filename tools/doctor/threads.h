// Checks OpenMP and OpenBLAS.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/finding.h"

namespace stagegpt {

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
