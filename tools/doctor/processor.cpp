#include "tools/doctor/processor.h"

#include <omp.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/base/error.h"
#include "common/system/system_files.h"
#include "stage0_serial/blas/openblas.h"

namespace stagegpt {
namespace {

#if defined(__AVX2__)
constexpr bool kForAvx2 = true;
#else
constexpr bool kForAvx2 = false;
#endif
#if defined(__FMA__)
constexpr bool kForFma = true;
#else
constexpr bool kForFma = false;
#endif
#if defined(__AVX512F__)
constexpr bool kForAvx512 = true;
#else
constexpr bool kForAvx512 = false;
#endif

std::vector<InstructionSet> instruction_sets() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return {{"AVX2", kForAvx2, __builtin_cpu_supports("avx2") != 0},
          {"FMA", kForFma, __builtin_cpu_supports("fma") != 0},
          {"AVX-512", kForAvx512, __builtin_cpu_supports("avx512f") != 0}};
#else
  return {};
#endif
}

Finding judge_cores(const ProcessorFacts& facts) {
  const std::string found = concat(facts.cores, facts.cores == 1 ? " core" : " cores",
                                   facts.model.empty() ? "" : ", ", facts.model);
  if (facts.quota && *facts.quota < facts.cores) {
    return {"processor", Finding::Mark::note,
            concat(found, ", of which this container may use ", *facts.quota),
            concat("more threads are slower: --threads ", std::max(1, static_cast<int>(*facts.quota)))};
  }
  return {"processor", Finding::Mark::ok, found};
}

Finding judge_instructions(const std::vector<InstructionSet>& sets) {
  std::string used, unknown, unused;
  for (const InstructionSet& set : sets) {
    std::string& list = !set.compiled_for ? unused : set.here ? used : unknown;
    if (set.compiled_for || set.here) list += (list.empty() ? "" : ", ") + set.name;
  }
  if (!unknown.empty()) {
    return {"instructions", Finding::Mark::problem,
            concat("the programs use ", unknown, ", which this processor lacks"),
            "they were built on another machine: configure and build on this one",
            /*prevents_stage0=*/true};
  }
  if (!unused.empty()) {
    return {"instructions", Finding::Mark::note,
            concat("this processor has ", unused, ", which the programs do not use"),
            "they were built for another processor, or for any: configure and build on this one"};
  }
  return {"instructions", Finding::Mark::ok, used.empty() ? "baseline only" : used};
}

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

ProcessorFacts processor_facts() {
  return {.model = value_of(system_file("/proc/cpuinfo"), "model name"),
          .cores = omp_get_num_procs(),
          .quota = cpu_quota(),
          .instructions = instruction_sets()};
}

Findings judge_processor(const ProcessorFacts& facts) {
  return {judge_cores(facts), judge_instructions(facts.instructions)};
}

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
