#include "common/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace stagegpt {
namespace {

constexpr LrSchedule::Kind kKinds[] = {LrSchedule::Kind::cosine, LrSchedule::Kind::linear,
                                       LrSchedule::Kind::constant};

LrSchedule schedule(LrSchedule::Kind kind) {
  return {
      .kind = kind, .learning_rate = 1.0, .min_lr = 0.2, .warmup_steps = 4, .steps = 14, .decay_steps = 4};
}

TEST(LrSchedule, WarmsUpLinearly) {
  for (const auto kind : kKinds) {
    for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(schedule(kind).at(step), (step + 1) / 4.0);
    EXPECT_DOUBLE_EQ(schedule(kind).at(4), 1.0);
  }
}

TEST(LrSchedule, DecaysToTheFloorAndStays) {
  EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::cosine).at(9), 0.6);  // halfway through the decay
  EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::linear).at(9), 0.6);
  EXPECT_NEAR(schedule(LrSchedule::Kind::cosine).at(6), 0.2 + 0.4 * (1 + 0.80901699437), 1e-10);  // cos 36°
  EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::linear).at(6), 0.84);
  for (const int step : {14, 15, 1000}) {
    EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::cosine).at(step), 0.2);
    EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::linear).at(step), 0.2);
    EXPECT_DOUBLE_EQ(schedule(LrSchedule::Kind::constant).at(step), 1.0);
  }
}

TEST(LrSchedule, StaysThenFalls) {
  const LrSchedule wsd = schedule(LrSchedule::Kind::wsd);
  EXPECT_DOUBLE_EQ(wsd.at(0), 0.25);
  for (int step = 4; step <= 10; ++step) EXPECT_DOUBLE_EQ(wsd.at(step), 1.0) << step;
  EXPECT_DOUBLE_EQ(wsd.at(11), 0.8);  // a quarter of the fall
  EXPECT_DOUBLE_EQ(wsd.at(13), 0.4);
  EXPECT_DOUBLE_EQ(wsd.at(14), 0.2);
  EXPECT_DOUBLE_EQ(wsd.at(1000), 0.2);
}

TEST(LrSchedule, WithoutWarmUpBeginsAtThePeak) {
  for (const auto kind : kKinds) {
    LrSchedule s = schedule(kind);
    s.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(s.at(0), 1.0);
  }
}

}  // namespace
}  // namespace stagegpt
