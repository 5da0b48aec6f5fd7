// Errors while saving a run on several ranks.
#include <gtest/gtest.h>

#include "tests/support/mpi_program.h"
#include "tests/support/sanitized.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class FaultySave : public TrainedRuns {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "nothing can be loaded before the sanitizer";
    TrainedRuns::SetUp();
  }
  ProgramResult train(int ranks, const std::string& run, const Arguments& more, const char* fault,
                      const char* which) const {
    return run_mpi(ranks_of(ranks, "stage1_train") + small(run, {"--steps", "4"}) + more, directory_.path(),
                   {.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK}, {fault, which}}});
  }
  bool has_checkpoint(const std::string& run, const char* name) const {
    return std::filesystem::exists(directory_.path() / run / "checkpoints" / name);
  }
};

// A save without memory fails, but the run continues and the next save succeeds.
TEST_F(FaultySave, WithoutMemoryIsTriedAgain) {
  for (const int ranks : {1, 2}) {
    const std::string run = std::to_string(ranks);
    const ProgramResult result =
        train(ranks, run, {"--checkpoint-every", "2"}, "STAGEGPT_NO_MEMORY", "00000002.tmp/model");
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    const std::string who = ranks == 1 ? "" : "rank 0: ";
    EXPECT_NE(result.errors.find("warning: saving step 2: " + who + "out of memory"), std::string::npos)
        << result.errors;
    EXPECT_FALSE(has_checkpoint(run, "step_00000002"));
    EXPECT_TRUE(has_checkpoint(run, "step_00000004"));
  }
}

// Rank 2 receives wrong data, so its weights differ. The ranks detect the difference, but not its cause.
TEST_F(FaultySave, OfWeightsThatDifferEndsTheRunAndNamesTheRank) {
  const ProgramResult result =
      train(3, "run", {"--comm", "flat", "--checkpoint-every", "2"}, "STAGEGPT_CORRUPT", "2");
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_NE(result.errors.find("weights after step 2: rank 2 ("), std::string::npos) << result.errors;
  EXPECT_FALSE(has_checkpoint("run", "step_00000002"));
}

}  // namespace
}  // namespace stagegpt::test
