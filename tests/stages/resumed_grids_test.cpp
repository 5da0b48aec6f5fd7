// Checkpoints of ranks that each have a part of the moments or of the model, and runs that move between
// grids.
#include <gtest/gtest.h>

#include "tests/support/mpi_program.h"
#include "tests/support/trained_runs.h"

namespace stagegpt::test {
namespace {

class ResumedGrids : public TrainedRuns {
 protected:
  static Arguments small(const std::string& run, const Arguments& more = {}) {
    return TrainedRuns::small(run, with_flags(words("--steps 4 --eval-every 4 --max-new-tokens 0"), more));
  }
  void train(int ranks, const Arguments& arguments, const std::string& program = "stage1_train") const {
    expect_done(run_mpi(Arguments{"--quiet"} + ranks_of(ranks, program) + arguments, directory_.path()));
  }
};

TEST_F(ResumedGrids, OfDividedMomentsSaveTheFilesOfWholeOnes) {
  train(4, small("whole"));
  train(4, small("divided", {"--comm", "zero1", "--stop-after", "2"}));
  train(4, {"--resume", "divided"});
  EXPECT_EQ(hash_after(4, "divided"), hash_after(4, "whole"));
}

TEST_F(ResumedGrids, WithDividedMomentsGoOnAtStage3) {
  train(3, small("serial", {"--comm", "zero1"}));
  train(3, small("moved", {"--comm", "zero1", "--stop-after", "2"}));
  train(2, words("--resume moved --comm zero1-overlapped --stop-after 3"), "stage3_train_emulated");
  train(4, {"--resume", "moved"});
  expect_same_curves("moved", "serial");
}

// Two tensor ranks, twice: no rank has a whole matrix. First these are two data ranks, then two stages, and
// no rank has all layers.
TEST_F(ResumedGrids, CollectTheirParts) {
  for (const std::string stages : {"1", "2"}) {
    const Arguments grid = {"--tensor-parallel", "2", "--pipeline-parallel", stages, "--n-layer", stages};
    const std::string whole = "whole" + stages, stopped = "stopped" + stages;
    train(4, small(whole, grid));
    train(4, small(stopped, with_flags(grid, {"--stop-after", "2"})));
    train(4, {"--resume", stopped});
    EXPECT_EQ(hash_after(4, stopped), hash_after(4, whole)) << stages << " stages";
  }
}

}  // namespace
}  // namespace stagegpt::test
