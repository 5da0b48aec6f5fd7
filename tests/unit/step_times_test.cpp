// The time of a step, from the times of several steps.
#include "common/measure/step_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

Samples samples(std::initializer_list<double> times) {
  Samples all;
  for (const double ms : times) all.add(ms);
  return all;
}

TEST(Samples, lie_between_the_least_and_the_most) {
  const Samples odd = samples({3, 1, 2}), even = samples({4, 1, 3, 2});
  EXPECT_EQ(odd.median(), 2);
  EXPECT_EQ(even.median(), 2.5);
  EXPECT_EQ(even.quantile(0), 1);
  EXPECT_EQ(even.quantile(1), 4);
  EXPECT_EQ(odd.quantile(0.25), 1.5);
  EXPECT_EQ(samples({5}).quantile(0.75), 5);
  EXPECT_EQ(internal_error([] { Samples().median(); }), "a quantile of no samples");
}

TEST(Samples, that_are_no_numbers_are_the_last) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Samples times = samples({2, nan, 1, 3, nan});
  EXPECT_EQ(times.quantile(0), 1);
  EXPECT_EQ(times.median(), 3);
  EXPECT_TRUE(std::isnan(times.quantile(1)));
}

TEST(PhaseTimes, one_disturbed_step_changes_no_phase) {
  PhaseTimes times;
  times.add({2, 20, 300, 4000, 50000});
  times.add({1e6, 1e6, 1e6, 1e6, 1e6});
  times.add({2, 19, 299, 3999, 49999});
  const PhaseSeconds median = times.median();
  EXPECT_DOUBLE_EQ(median.data, 2);
  EXPECT_DOUBLE_EQ(median.forward, 20);
  EXPECT_DOUBLE_EQ(median.backward, 300);
  EXPECT_DOUBLE_EQ(median.communication, 4000);
  EXPECT_DOUBLE_EQ(median.optimizer, 50000);
}

// A step of 13 ms, and one in which the machine did something else for 79 ms.
TEST(OpTimes, one_disturbed_step_changes_no_op) {
  const auto step = [](double linear, double attention) {
    return std::vector<Profiler::Entry>{{"attention", 2, attention, {7, 8}}, {"linear", 9, linear, {5, 6}}};
  };
  OpTimes times;
  times.add(step(0.010, 0.079));
  times.add(step(0.012, 0.003));
  times.add(step(0.011, 0.002));
  const std::vector<Profiler::Entry> ops = times.medians();
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "linear");  // the longest
  EXPECT_DOUBLE_EQ(ops[0].seconds, 0.011);
  EXPECT_EQ(ops[0].calls, 9);  // calls in one step
  EXPECT_EQ(ops[0].work.flops, 5);
  EXPECT_EQ(ops[0].work.bytes, 6);
  EXPECT_EQ(ops[1].name, "attention");
  EXPECT_DOUBLE_EQ(ops[1].seconds, 0.003);
}

TEST(OpTimes, takes_the_steps_that_had_an_op) {
  OpTimes times;
  times.add({{"copy", 1, 0.5, {}}});
  times.add({{"fill", 1, 0.2, {}}});
  times.add({{"fill", 1, 0.4, {}}});
  const std::vector<Profiler::Entry> ops = times.medians();
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_DOUBLE_EQ(ops[0].seconds, 0.5);
  EXPECT_DOUBLE_EQ(ops[1].seconds, 0.3);
}

}  // namespace
}  // namespace stagegpt::test
