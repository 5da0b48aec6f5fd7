#include "tools/doctor/build_facts.h"

#include <sstream>

#include "common/base/error.h"

namespace stagegpt {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // "Clang 14.0.6"
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

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

}  // namespace stagegpt
