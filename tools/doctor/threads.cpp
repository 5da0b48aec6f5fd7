#include "tools/doctor/threads.h"

#include <omp.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/error.h"
#include "stage0_serial/blas/openblas.h"

namespace stagegpt {
namespace {

// What a variable does to training.
struct Variable {
  const char* name;
  const char* advice;  // nullptr: it does no harm
};
constexpr Variable kVariables[] = {
    {"OMP_THREAD_LIMIT", nullptr},  // judged by its value
    {"OMP_WAIT_POLICY",
     "passive threads sleep between any two loops, which takes longer: unset OMP_WAIT_POLICY"},
    {"OMP_DYNAMIC", "OpenMP may take fewer threads than there are cores: unset OMP_DYNAMIC"},
    {"OMP_PROC_BIND", nullptr},
    {"OMP_PLACES", nullptr},
    {"GOMP_CPU_AFFINITY", nullptr},
    {"OMP_NUM_THREADS", "not what the programs go by: --threads is"},
    {"OPENBLAS_CORETYPE",
     "it decides on OpenBLAS's kernels, in place of what the processor can do: unset it"},
};

// OpenMP reads its variables so: ACTIVE is active.
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
  std::string found = concat(facts.cores, facts.cores == 1 ? " thread" : " threads", ", one a core");
  std::string advice;
  for (const auto& [name, value] : facts.environment) {
    found += concat(", ", name, "=", value);
    const auto* variable = std::ranges::find(kVariables, name, &Variable::name);
    const std::string meant = in_lower_case(value);
    const bool harmless = meant == "active" || meant == "false";
    if (advice.empty() && variable->advice != nullptr && !harmless) advice = variable->advice;
  }
  if (facts.limit < facts.cores) advice = "OpenMP does not go beyond its limit: unset OMP_THREAD_LIMIT";
  return {"OpenMP", advice.empty() ? Finding::Mark::ok : Finding::Mark::note, found, advice};
}

Finding judge_blas(bool loaded, const std::string& description) {
  if (loaded) return {"BLAS", Finding::Mark::ok, description + ", with OpenMP's threads"};
  return {
      "BLAS", Finding::Mark::problem, description,
      "./scripts/setup.sh installs it; without it, --cpu-matmul tiled multiplies, at a fraction of the speed",
      /*prevents_stage0=*/true};
}

Finding examine_blas() {
  try {
    return judge_blas(true, OpenBlas::instance().description());
  } catch (const std::runtime_error& error) {
    return judge_blas(false, error.what());
  }
}

}  // namespace stagegpt
