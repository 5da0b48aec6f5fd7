#include "tools/doctor/build_facts.h"

#include <unistd.h>

#include <sstream>

#include "common/base/error.h"

namespace stagegpt {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // "Clang 14.0.6"
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

namespace fs = std::filesystem;
using Mark = Finding::Mark;

// The programs of a stage: PREFIXtrainSUFFIX and so on.
struct StagePrograms {
  std::string subject, prefix, suffix;
  bool needs_nvcc;
};

Finding judge_stage(const StagePrograms& stage, const std::set<std::string>& names, const BuildFacts& build,
                    const fs::path& build_directory) {
  std::string there, missing;
  for (const char* job : {"train", "generate", "evaluate", "inspect", "verify", "bench"}) {
    const std::string name = stage.prefix + job + stage.suffix;
    std::string& list = names.contains(name) ? there : missing;
    list += (list.empty() ? "" : ", ") + name;
  }
  if (missing.empty()) return {stage.subject, Mark::ok, there};
  if (stage.needs_nvcc && build.nvcc.empty()) {
    return {stage.subject, Mark::note, "not built: nvcc was not found",
            "for a GPU, install the CUDA toolkit, 12 or newer, and configure again; the emulated programs do "
            "not need it"};
  }
  const bool prevents = !names.contains("stage0_train") && stage.prefix == "stage0_";
  return {stage.subject, prevents ? Mark::problem : Mark::note, "not built: " + missing,
          concat("cmake --build ", build_directory.string()), prevents};
}

}  // namespace

BuildFacts build_facts() {
  BuildFacts facts{.compiler = kCompiler,
                   .build_type = STAGEGPT_BUILD_TYPE,
                   .native = STAGEGPT_BUILT_NATIVE,
                   .sanitized = STAGEGPT_BUILT_SANITIZED,
                   .processor = STAGEGPT_ARCH,
                   .nvcc = STAGEGPT_NVCC_VERSION};
  std::istringstream architectures(STAGEGPT_CUDA_ARCHITECTURES);
  for (std::string one; std::getline(architectures, one, ',');) facts.architectures.push_back(one);
  return facts;
}

Finding judge_build(const BuildFacts& build) {
  const std::string processor = build.native              ? "the processor of the build machine"
                                : build.processor.empty() ? "any processor"
                                                          : build.processor;
  const std::string found = concat(build.compiler, ", ", build.build_type, ", for ", processor,
                                   build.nvcc.empty() ? ", without nvcc" : ", nvcc ", build.nvcc);
  if (build.sanitized) {
    return {"build", Finding::Mark::note, found + ", with sanitizers",
            "many times slower; for training: cmake --preset release"};
  }
  if (build.build_type != "Release" && build.build_type != "RelWithDebInfo") {
    return {"build", Finding::Mark::note, found, "not optimised; for training: cmake --preset release"};
  }
  if (!build.native) {
    return {"build", Finding::Mark::note, found,
            "faster on this machine, if built with -DSTAGEGPT_NATIVE=ON"};
  }
  return {"build", Finding::Mark::ok, found};
}

std::set<std::string> programs_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (access(entry.path().c_str(), X_OK) == 0 && entry.is_regular_file()) {
      names.insert(entry.path().filename());
    }
  }
  return names;
}

Findings judge_programs(const std::set<std::string>& names, const BuildFacts& build,
                        const fs::path& build_directory) {
  const StagePrograms stages[] = {
      {"stage 0", "stage0_", "", false}, {"stage 1", "stage1_", "", false},
      {"stage 2", "stage2_", "", true},  {"stage 2, emulated", "stage2_", "_emulated", false},
      {"stage 3", "stage3_", "", true},  {"stage 3, emulated", "stage3_", "_emulated", false}};
  Findings findings;
  for (const StagePrograms& stage : stages)
    findings.push_back(judge_stage(stage, names, build, build_directory));
  return findings;
}

}  // namespace stagegpt
