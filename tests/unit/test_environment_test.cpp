// The environment variables that CTest sets for the tests of tests/CMakeLists.txt.
#include <gtest/gtest.h>

#include <cstdlib>

namespace stagegpt::test {
namespace {

TEST(TestEnvironment, has_threads_that_sleep_while_they_wait) {
  if (std::getenv("MALLOC_PERTURB_") == nullptr) GTEST_SKIP() << "not started by ctest";
  EXPECT_STREQ(std::getenv("OMP_WAIT_POLICY"), "passive");
}

}  // namespace
}  // namespace stagegpt::test
