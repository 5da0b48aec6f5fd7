// Stage 2's programs for a GPU, on a machine without a visible GPU.
#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

ProgramResult without_device(const std::string& program, const std::vector<std::string>& arguments) {
  const ScratchDirectory directory;
  return run_program(program, arguments, directory.path(), {.environment = {{"CUDA_VISIBLE_DEVICES", "-1"}}});
}

TEST(Stage2WithoutDevice, TellsInOneLineWhatWouldHelp) {
  for (const char* program : {"stage2_train", "stage2_bench"}) {
    const ProgramResult result = without_device(program, {"--device", "0"});
    EXPECT_EQ(result.exit_code, 2) << result.errors;
    EXPECT_EQ(result.errors.find('\n'), result.errors.size() - 1) << result.errors;
    expect_said(result, "_emulated");
  }
}

TEST(Stage2WithoutDevice, ShowsHelpAndRefusesOtherStagesFlags) {
  EXPECT_NE(without_device("stage2_bench", {"--help"}).output.find("--ladder"), std::string::npos);
  expect_failure(without_device("stage2_train", {"--threads", "2"}), 2,
                 "--threads: stage 2 has no use for it");
}

TEST(Stage2WithoutDevice, HandWrittenProductsAreF32) {
  expect_failure(without_device("stage2_train", {"--precision", "tf32", "--gpu-matmul", "tiled"}), 2,
                 "--precision: tf32 needs --gpu-matmul cublaslt");
}

}  // namespace
}  // namespace stagegpt::test
