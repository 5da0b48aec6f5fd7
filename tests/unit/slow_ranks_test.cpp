// When a rank is reported as slow.
#include <gtest/gtest.h>

#include "common/train/run_log.h"

namespace stagegpt::test {
namespace {

// The ranks that are reported as slow during `steps` steps, in which the ranks take `seconds`.
std::vector<int> named(SlowRanks& ranks, std::int64_t steps, const std::vector<double>& seconds) {
  std::vector<int> told;
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto slow = ranks.add(seconds);
    if (!slow) continue;
    EXPECT_EQ(i % SlowRanks::kSteps, SlowRanks::kSteps - 1);
    told.push_back(slow->rank);
  }
  return told;
}

TEST(SlowRanks, OneIsNamedOnceAfterItsSteps) {
  SlowRanks ranks;
  EXPECT_EQ(named(ranks, 3 * SlowRanks::kSteps, {1, 1.1, 1.7, 0.9}), std::vector<int>{2});
  // Then another rank is slow.
  EXPECT_EQ(named(ranks, SlowRanks::kSteps, {3, 1, 1, 1}), std::vector<int>{0});
}

TEST(SlowRanks, TheFactorIsOverTheMedianOfTheOthers) {
  SlowRanks ranks;
  for (std::int64_t i = 1; i < SlowRanks::kSteps; ++i) ranks.add(std::vector<double>{1, 2, 8, 6});
  const auto slow = ranks.add(std::vector<double>{1, 2, 8, 6});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2);
  EXPECT_DOUBLE_EQ(slow->factor, 4);
}

TEST(SlowRanks, SmallDifferencesAndSingleStepsAreNone) {
  SlowRanks ranks;
  EXPECT_TRUE(named(ranks, 2 * SlowRanks::kSteps, {1, 1.49}).empty());
  EXPECT_TRUE(named(ranks, 1, {1, 20}).empty());
  EXPECT_TRUE(named(ranks, SlowRanks::kSteps - 1, {1, 1}).empty());
  EXPECT_TRUE(named(ranks, 2 * SlowRanks::kSteps, {1}).empty());
}

}  // namespace
}  // namespace stagegpt::test
