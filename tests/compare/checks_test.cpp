// Checks find disagreements and name the correct step and contestants.
#include "tools/compare/checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/compare/made_comparison.h"

namespace stagegpt::compare::test {
namespace {

const Check& check_of(const Comparison& comparison, std::size_t subject, Check::Kind kind) {
  for (const Check& found : comparison.checks) {
    if (found.subject == subject && found.kind == kind) return found;
  }
  throw std::runtime_error("no such check");
}

TEST(Agreement, HoldsWhereAllIsAlike) {
  Comparison comparison = made_comparison();
  check(comparison);
  ASSERT_EQ(comparison.checks.size(), 5u);  // 2 comparisons with the reference, 3 of repeats
  EXPECT_TRUE(comparison.passed());
  for (const Check& found : comparison.checks) EXPECT_EQ(found.steps, 5);
  EXPECT_NE(verdict(comparison).find("All 3 contestants agree"), std::string::npos) << verdict(comparison);
}

TEST(Agreement, NamesTheFirstStepThatIsBeyondTheLimit) {
  Comparison comparison = made_comparison();
  std::vector<StepRecord>& steps = comparison.entries[2].trials[1].steps;  // in one repeat only
  steps[3].loss *= 1 + 3e-5;
  steps[4].loss *= 1 + 4e-5;
  steps[1].loss *= 1 + 0.5e-5;  // within the limit
  check(comparison);
  EXPECT_FALSE(comparison.passed());
  const Check& found = check_of(comparison, 2, Check::Kind::tolerance);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->step, 4);
  EXPECT_EQ(found.first->quantity, "loss");
  EXPECT_EQ(found.first->trial, 1u);
  EXPECT_NEAR(found.first->error, 3e-5, 1e-9);
  EXPECT_NEAR(found.loss_error, 4e-5, 1e-9);
  EXPECT_EQ(found.loss_step, 5);
  EXPECT_TRUE(check_of(comparison, 1, Check::Kind::tolerance).passed());
  const std::string text = verdict(comparison);
  for (const char* part : {"Stage 1, 2 ranks", "Stage 0", "step 4", "loss", "3e-5", "1e-5"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST(Agreement, HasALimitOfItsOwnForNorms) {
  Comparison comparison = made_comparison();
  for (std::size_t trial = 0; trial < 2; ++trial) {
    comparison.entries[1].trials[trial].steps[2].grad_norm *= 1 + 0.9e-4;
    comparison.entries[2].trials[trial].steps[2].grad_norm *= 1 - 1.1e-4;
  }
  check(comparison);
  EXPECT_TRUE(check_of(comparison, 1, Check::Kind::tolerance).passed());
  const Check& found = check_of(comparison, 2, Check::Kind::tolerance);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->quantity, "gradient norm");
  EXPECT_EQ(found.first->step, 3);
}

TEST(Agreement, RepeatsMustHaveTheSameBits) {
  for (const bool in_loss : {true, false}) {
    Comparison comparison = made_comparison();
    StepRecord& step = comparison.entries[1].trials[1].steps[2];
    double& value = in_loss ? step.loss : step.grad_norm;
    value = std::nextafter(value, 10);
    check(comparison);
    const Check& found = check_of(comparison, 1, Check::Kind::repeats);
    ASSERT_TRUE(found.first);
    EXPECT_EQ(found.first->step, 3);
    EXPECT_EQ(found.first->limit, 0);
    EXPECT_TRUE(check_of(comparison, 1, Check::Kind::tolerance).passed());
    EXPECT_FALSE(comparison.passed());
  }
  Comparison comparison = made_comparison();
  comparison.entries[1].trials[1].weights_xxh3_128 = "b";
  check(comparison);
  ASSERT_TRUE(check_of(comparison, 1, Check::Kind::repeats).first);
  EXPECT_EQ(check_of(comparison, 1, Check::Kind::repeats).first->quantity, "final weights");
}

// Stage 0 without --reproducible, then stages 0, 1, 2 and 3 with it.
Comparison reproducible_comparison() {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  for (const int stage : {0, 1, 2, 3}) {
    Entry one = entry(contestant(stage, stage % 2 + 1), 1, 1);
    one.contestant.reproducible = true;
    comparison.entries.push_back(one);
  }
  return comparison;
}

TEST(Agreement, ReproducibleOnesOnTheSameHardwareMustHaveTheSameBits) {
  Comparison comparison = reproducible_comparison();
  check(comparison);
  EXPECT_EQ(check_of(comparison, 2, Check::Kind::bits).reference, 1u);  // stage 1 with stage 0
  EXPECT_EQ(check_of(comparison, 4, Check::Kind::bits).reference, 3u);  // stage 3 with stage 2
  EXPECT_EQ(check_of(comparison, 1, Check::Kind::tolerance).reference, 0u);
  EXPECT_EQ(check_of(comparison, 3, Check::Kind::tolerance).reference, 0u);
  EXPECT_TRUE(comparison.passed());

  comparison = reproducible_comparison();
  comparison.entries[4].trials[0].steps[0].loss = std::nextafter(4.0, 10);
  comparison.entries[2].trials[0].weights_xxh3_128 = "b";
  check(comparison);
  EXPECT_EQ(check_of(comparison, 4, Check::Kind::bits).first->step, 1);
  EXPECT_EQ(check_of(comparison, 2, Check::Kind::bits).first->quantity, "final weights");
}

TEST(Agreement, ComparesWithTheSameBatchSize) {
  Comparison comparison = made_comparison();
  Entry larger = comparison.entries[0];
  larger.contestant.batch_size = 16;
  for (Trial& run : larger.trials) run.steps[0].loss = 3;
  comparison.entries[2] = larger;
  comparison.entries[2].contestant.program.stage = 1;
  comparison.entries.insert(comparison.entries.begin() + 2, larger);
  check(comparison);
  EXPECT_TRUE(comparison.passed());
  EXPECT_EQ(check_of(comparison, 3, Check::Kind::tolerance).reference, 2u);
}

TEST(Agreement, CountsStepsAndWhatIsNotFinite) {
  Comparison comparison = made_comparison();
  for (Trial& run : comparison.entries[1].trials) run.steps.pop_back();
  for (Trial& run : comparison.entries[2].trials)
    run.steps[1].loss = std::numeric_limits<double>::quiet_NaN();
  check(comparison);
  EXPECT_EQ(check_of(comparison, 1, Check::Kind::tolerance).first->quantity, "number of steps");
  EXPECT_EQ(check_of(comparison, 2, Check::Kind::tolerance).first->step, 2);
  EXPECT_TRUE(check_of(comparison, 2, Check::Kind::repeats).passed());  // the same NaN
}

TEST(Agreement, IsNotThereForWhoHasNotRun) {
  Comparison comparison = made_comparison();
  comparison.entries[0].trials.clear();
  comparison.entries[0].failure = "exit code 1";
  check(comparison);
  EXPECT_EQ(check_of(comparison, 2, Check::Kind::tolerance).reference, 1u);
  EXPECT_FALSE(comparison.passed());
  EXPECT_NE(verdict(comparison).find("Stage 0 failed"), std::string::npos) << verdict(comparison);
}

TEST(Agreement, IsNotClaimedWhereNothingWasCompared) {
  Comparison comparison = made_comparison();
  comparison.entries.resize(1);
  check(comparison);
  ASSERT_EQ(comparison.checks.size(), 1u);  // only the comparison of its repeats
  EXPECT_TRUE(comparison.passed());
  EXPECT_NE(verdict(comparison).find("nothing to compare with"), std::string::npos) << verdict(comparison);
  comparison.entries = made_comparison().entries;
  for (std::size_t i = 0; i < 3; ++i) comparison.entries[i].contestant.batch_size <<= i;
  check(comparison);
  EXPECT_EQ(comparison.checks.size(), 3u);
  EXPECT_NE(verdict(comparison).find("nothing to compare with"), std::string::npos) << verdict(comparison);
}

TEST(RelativeDifference, IsOfTheExpectedValue) {
  EXPECT_DOUBLE_EQ(relative_difference(2, 3), 0.5);
  EXPECT_DOUBLE_EQ(relative_difference(-2, -1), 0.5);
  EXPECT_EQ(relative_difference(0, 0), 0);
  EXPECT_TRUE(std::isinf(relative_difference(0, 1)));
  EXPECT_TRUE(std::isinf(relative_difference(1, std::nan(""))));
  EXPECT_EQ(relative_difference(std::nan(""), std::nan("")), 0);
}

}  // namespace
}  // namespace stagegpt::compare::test
