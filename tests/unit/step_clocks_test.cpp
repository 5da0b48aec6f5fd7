// The clocks of a step, which add the intervals of a timer.
#include <gtest/gtest.h>

#include <memory>

#include "common/comm/reduction_clock.h"
#include "common/train/phase_clock.h"
#include "stage0_serial/naive_backend.h"

namespace stagegpt::test {
namespace {

// The intervals between marks are 1, 2, 4, … s, so that a sum identifies its intervals.
class DoublingTimer final : public WorkTimer {
 public:
  void mark() override { ++marks_; }
  std::vector<double> take_intervals() override {
    std::vector<double> seconds;
    for (int i = 1; i < marks_; ++i) seconds.push_back(1 << (i - 1));
    marks_ = 0;
    return seconds;
  }

 private:
  int marks_ = 0;
};

TEST(HostTimer, HasAnIntervalBetweenTwoMarks) {
  HostTimer timer;
  EXPECT_TRUE(timer.take_intervals().empty());
  timer.mark();
  EXPECT_TRUE(timer.take_intervals().empty());
  for (int i = 0; i < 3; ++i) timer.mark();
  const std::vector<double> seconds = timer.take_intervals();
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_GE(seconds[0], 0);
  EXPECT_GE(seconds[1], 0);
}

TEST(PhaseClock, AddsEachIntervalToItsPhase) {
  PhaseClock clock(std::make_unique<DoublingTimer>());
  PhaseSeconds seconds;
  for (int step = 1; step <= 2; ++step) {
    clock.start();
    clock.end(&PhaseSeconds::data);           // 1
    clock.end(&PhaseSeconds::forward);        // 2
    clock.end(&PhaseSeconds::backward);       // 4
    clock.end(&PhaseSeconds::communication);  // 8
    clock.end(&PhaseSeconds::backward);       // 16
    clock.end(&PhaseSeconds::optimizer);      // 32
    clock.add_to(seconds);
    EXPECT_EQ(seconds.data, step * 1);
    EXPECT_EQ(seconds.forward, step * 2);
    EXPECT_EQ(seconds.backward, step * 20);
    EXPECT_EQ(seconds.communication, step * 8);
    EXPECT_EQ(seconds.optimizer, step * 32);
  }
}

TEST(PhaseClock, ForgetsAStepThatDidNotEnd) {
  PhaseClock clock(std::make_unique<DoublingTimer>());
  clock.start();
  clock.end(&PhaseSeconds::forward);
  clock.start();
  clock.end(&PhaseSeconds::data);
  PhaseSeconds seconds;
  clock.add_to(seconds);
  EXPECT_EQ(seconds.forward, 0);
  EXPECT_EQ(seconds.data, 1);
}

// Two overlapping reductions, a pause, and an all-gather of weights.
TEST(ReductionClock, CountsBytesAndTheTimeUnderWayButNoPause) {
  const std::unique_ptr<Backend> backend = make_naive_backend();
  const Tensor ten = backend->allocate(DType::f32, {10}), five = backend->allocate(DType::f32, {5});
  ReductionClock clock(std::make_unique<DoublingTimer>());
  for (int step = 0; step < 2; ++step) {
    clock.start(ten);
    clock.start(five);
    clock.stop();   // 1
    clock.start();  // 2: the pause
    clock.stop();   // 4
    const CommunicationReport report = clock.take_report();
    EXPECT_EQ(report.bytes_reduced, 60);
    EXPECT_EQ(report.seconds_under_way, 5);
  }
  EXPECT_EQ(clock.take_report().bytes_reduced, 0);
}

}  // namespace
}  // namespace stagegpt::test
