#include "tools/doctor/processor.h"

#include <omp.h>

#include <sstream>

#include "common/base/error.h"
#include "common/system/cpu_quota.h"
#include "common/system/system_files.h"

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

}  // namespace

std::string parse_processor_model(std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

ProcessorFacts processor_facts() {
  return {.model = parse_processor_model(system_file("/proc/cpuinfo")),
          .cores = omp_get_num_procs(),
          .quota = cpu_quota(),
          .instructions = instruction_sets()};
}

Findings judge_processor(const ProcessorFacts& facts) {
  return {judge_cores(facts), judge_instructions(facts.instructions)};
}

}  // namespace stagegpt
