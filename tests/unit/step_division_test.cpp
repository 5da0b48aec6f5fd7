// Division of a step's samples among ranks.
#include "common/data/step_division.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

std::string refusal_of(std::int64_t batch_size, int ranks, std::int64_t sub_batches) {
  return refusal([&] { divide_step(batch_size, 1, 0, ranks, sub_batches); });
}

TEST(StepDivision, gives_each_sub_batch_to_one_rank) {
  for (const std::int64_t sub_batches : {0, 8}) {
    for (const int ranks : {1, 2, 4, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const StepDivision division = divide_step(24, 3, rank, ranks, sub_batches);
        EXPECT_EQ(division.first_sub_batch, next);
        EXPECT_EQ(division.sub_batch_size() * division.sub_batches, 24);
        EXPECT_EQ(division.samples(), 72);
        next += division.owned_sub_batches;
      }
      EXPECT_EQ(next, sub_batches > 0 ? sub_batches : ranks);
    }
  }
}

TEST(StepDivision, refuses_a_batch_that_does_not_divide) {
  EXPECT_EQ(refusal_of(13, 4, 0),
            "--batch-size: 13 is not divisible by the number of ranks, 4; use 12 or 16");
  EXPECT_EQ(refusal_of(3, 4, 0), "--batch-size: 3 is not divisible by the number of ranks, 4; use 4");
  EXPECT_EQ(refusal_of(12, 4, 8),
            "--batch-size: 12 is not divisible by the 8 sub-batches of --reproducible; use 8 or 16");
}

TEST(StepDivision, refuses_ranks_that_do_not_divide_the_sub_batches) {
  EXPECT_EQ(refusal_of(48, 3, 8), "--reproducible: expected 1, 2, 4 or 8 ranks, not 3");
  EXPECT_EQ(refusal_of(48, 16, 8), "--reproducible: expected 1, 2, 4 or 8 ranks, not 16");
  EXPECT_EQ(refusal_of(48, 2, 1), "--reproducible: expected 1 rank, not 2");
  EXPECT_EQ(refusal_of(48, 16, 16), "");
  EXPECT_EQ(refusal_of(128, 64, 64), "");
}

TEST(StepDivision, refuses_sub_batches_that_make_no_tree) {
  EXPECT_EQ(refusal_of(48, 2, 6), "--sub-batches: expected a power of two up to 64, not 6");
  EXPECT_EQ(refusal_of(256, 2, 128), "--sub-batches: expected a power of two up to 64, not 128");
}

// The number of the first sequence of a sub-batch is an i32.
TEST(StepDivision, refuses_more_sequences_than_an_i32_counts) {
  constexpr std::int64_t kAccumulation = std::int64_t{1} << 20;
  EXPECT_NO_THROW(divide_step(2047, kAccumulation, 0, 1, 0));
  EXPECT_THROW(divide_step(2048, kAccumulation, 0, 1, 0), UserError);
}

}  // namespace
}  // namespace stagegpt::test
