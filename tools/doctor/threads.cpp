#include "tools/doctor/threads.h"

#include <omp.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/error.h"
#include "stage0_serial/blas/openblas.h"

namespace stagegpt {
namespace {

// An environment variable that changes the speed of training.
struct Variable {
  const char* name;
  const char* advice;  // nullptr if it is harmless
};
constexpr Variable kVariables[] = {
    {"OMP_THREAD_LIMIT", nullptr},  // depends on its value: judge_threads()
    {"OMP_WAIT_POLICY", "threads sleep between parallel loops, which is slower: unset OMP_WAIT_POLICY"},
    {"OMP_DYNAMIC", "OpenMP may use fewer threads than cores: unset OMP_DYNAMIC"},
    {"OMP_PROC_BIND", nullptr},
    {"OMP_PLACES", nullptr},
    {"GOMP_CPU_AFFINITY", nullptr},
    {"OMP_NUM_THREADS", "it is the default of --threads, in place of all cores"},
    {"OPENBLAS_CORETYPE", "it overrides OpenBLAS's choice of kernels for this processor: unset it"},
};

// OpenMP ignores the case of its variables' values.
std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

ThreadFacts thread_facts() {
  ThreadFacts facts{.cores = omp_get_num_procs(), .limit = omp_get_thread_limit()};
  for (const Variable& variable : kVariables) {
    if (const char* value = std::getenv(variable.name)) facts.environment.emplace_back(variable.name, value);
  }
  return facts;
}

Finding judge_threads(const ThreadFacts& facts) {
  std::string found = concat(facts.cores, facts.cores == 1 ? " thread" : " threads", ", one per core");
  std::string advice;
  for (const auto& [name, value] : facts.environment) {
    found += concat(", ", name, "=", value);
    const auto* variable = std::ranges::find(kVariables, name, &Variable::name);
    const std::string meant = in_lower_case(value);
    const bool harmless = meant == "active" || meant == "false";
    if (advice.empty() && variable->advice != nullptr && !harmless) advice = variable->advice;
  }
  if (facts.limit < facts.cores)
    advice = "it limits OpenMP to fewer threads than cores: unset OMP_THREAD_LIMIT";
  return {"OpenMP", advice.empty() ? Finding::Mark::ok : Finding::Mark::note, found, advice};
}

Finding judge_blas(bool loaded, const std::string& description) {
  if (loaded) return {"BLAS", Finding::Mark::ok, description + ", OpenMP build"};
  return {"BLAS", Finding::Mark::note, description,
          "--cpu-matmul blas and the emulated stages 2 and 3 need it: ./scripts/setup.sh installs it"};
}

Finding examine_blas() {
  try {
    return judge_blas(true, OpenBlas::instance().description());
  } catch (const std::runtime_error& error) {
    return judge_blas(false, error.what());
  }
}

}  // namespace stagegpt
