// Runs tests on a GPU. Without a GPU they are skipped, with an exit code that CTest reports as skipped; if
// STAGEGPT_REQUIRE_GPU is set, they fail.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "common/base/error.h"
#include "stage2_cuda/runtime.h"

namespace {

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in tests/CMakeLists.txt

// Why device 0 cannot be used; empty if it can.
std::string why_no_gpu() {
  try {
    stagegpt::gpu::open_device(0);
    return "";
  } catch (const stagegpt::UserError& error) {
    return error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests)) {
    const std::string why = why_no_gpu();
    const bool required = std::getenv("STAGEGPT_REQUIRE_GPU") != nullptr;
    if (!why.empty()) {
      std::cout << (required ? "[  FAILED  ] " : "[  SKIPPED ] ") << why << '\n';
      return required ? 1 : kSkipped;
    }
  }
  return RUN_ALL_TESTS();
}
