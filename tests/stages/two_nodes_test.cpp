// Ranks on another node than rank 0, without shared memory: they get rank 0's state in messages.
// faulty_rank.cpp simulates nodes on this machine.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/mpi_program.h"
#include "tests/support/patterns.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class TwoNodes : public TrainedRuns {
 protected:
  // Trains with one rank per node. A file takes `milliseconds` to reach the disk. The watchdog's limit is
  // 2 s.
  ProgramResult train(int ranks, const Arguments& more, const char* milliseconds,
                      RunOptions options = {}) const {
    options.environment = {{"LD_PRELOAD", STAGEGPT_FAULTY_RANK},
                           {"STAGEGPT_NODES", std::to_string(ranks)},
                           {"STAGEGPT_SLOW_DISK", milliseconds}};
    return run_mpi(ranks_of(ranks, "stage1_train") + small("run", {"--watchdog-seconds", "2"}) + more,
                   directory_.path(), options);
  }
};

TEST_F(TwoNodes, ASaveThatTakesThreeTimesTheLimitGoesThrough) {
  const ProgramResult result = expect_done(train(2, {"--stop-after", "1"}, "700"));
  const auto told = all_groups(result.errors, "step_00000001 \\([^,]*, ([0-9.]+) s\\)");
  ASSERT_FALSE(told.empty()) << result.errors;
  EXPECT_GE(std::stod(told[0][0]), 6) << "the test's disk is too quick";
}

TEST_F(TwoNodes, ASaveOfASingleRankMayTakeLongerThanTheLimit) {
  EXPECT_EQ(train(1, {"--stop-after", "1"}, "400").exit_code, 0);
}

TEST_F(TwoNodes, ASaveThatHangsIsNamed) {
  const ProgramResult result = train(2, {"--stop-after", "1"}, "60000");
  EXPECT_NE(result.exit_code, 0);
  expect_said(result, "rank 0 has been in \"checkpoint\"");
  EXPECT_TRUE(all_end(directory_.path()));
}

// There is no other rank on rank 0's node that could detect the stop.
TEST_F(TwoNodes, ARootThatIsStoppedWhileItSavesIsMissed) {
  const auto stop_root = [&](pid_t) {
    const std::vector<pid_t> ranks = ranks_in(directory_.path());
    ASSERT_EQ(std::ssize(ranks), 2);
    kill(ranks[0], SIGSTOP);
  };
  const ProgramResult result =
      train(2, {"--checkpoint-every", "1"}, "300", {.signal_after = "step_00000002", .instead = stop_root});
  EXPECT_NE(result.exit_code, 0);
  expect_said(result, "rank 1 has waited for other ranks in \"");
  EXPECT_TRUE(all_end(directory_.path()));
}

}  // namespace
}  // namespace stagegpt::test
