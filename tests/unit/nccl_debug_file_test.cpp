// The file for NCCL's messages, which depends on the type of standard error.
#include "stage3_mpi_cuda/nccl_debug_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace stagegpt::test {
namespace {

// What nccl_debug_file() returns while standard error is `descriptor`.
std::string debug_file_with(int descriptor) {
  const int before = dup(STDERR_FILENO);
  dup2(descriptor, STDERR_FILENO);
  std::string name = gpu::nccl_debug_file();
  dup2(before, STDERR_FILENO);
  close(before);
  return name;
}

TEST(NcclDebugFile, IsStandardErrorWhereThatIsNoFile) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(debug_file_with(ends[1]), "/dev/stderr");
  for (const int end : ends) close(end);
}

// NCCL truncates the file that it opens. With 2>log, this must not be the log itself.
TEST(NcclDebugFile, IsBesideARegularFile) {
  char directory[] = "/tmp/stagegpt.XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string log = std::string(directory) + "/100%h.log";
  const int file = open(log.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_GE(file, 0);
  EXPECT_EQ(debug_file_with(file), std::string(directory) + "/100%%h.log.nccl.%h.%p");
  close(file);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace stagegpt::test
