// The library GEMM of the emulated device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {
namespace {

bool library_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  return std::string(std::istreambuf_iterator<char>(maps), {}).find("libopenblas") != std::string::npos;
}

// The library is loaded when the GEMM is created, so that a missing library is reported before the first
// step. The test needs a new process, which has not loaded the library yet.
TEST(EmulatedGemmDeathTest, its_library_is_loaded_when_it_is_made) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make = [] {
    const bool before = library_is_loaded();
    make_library_gemm(Precision::f32);
    std::exit(!before && library_is_loaded() ? 0 : 1);
  };
  EXPECT_EXIT(make(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stagegpt::gpu
