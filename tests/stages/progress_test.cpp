#include "common/logging/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>

#include "tests/support/on_a_terminal.h"

namespace stagegpt::test {
namespace {

ProgressState state_at(std::int64_t done) {
  ProgressState state;
  state.done = done;
  state.steps = 2000;
  state.loss = 1.23456;
  state.validation_loss = 1.5;
  state.learning_rate = 3e-3;
  state.grad_norm = 0.5;
  state.tokens_per_second = 12345;
  state.seconds_left = 36000;
  return state;
}

TEST(ProgressLine, FitsEveryWindow) {
  for (std::size_t width = 1; width <= 300; ++width) {
    const std::string line = progress_line(state_at(1999), width);
    EXPECT_LE(line.size(), width) << line;
    if (width >= 19) {
      EXPECT_EQ(line[0], '[') << line;
      EXPECT_TRUE(line.ends_with("ETA 10:00:00")) << line;
    }
  }
}

TEST(ProgressLine, HasAllWhereThereIsRoom) {
  EXPECT_EQ(
      progress_line(state_at(1000), 150),
      "[===============>              ]  step 1000/2000  loss 1.2346  val 1.5000  lr 3.00e-03  norm 0.50  "
      "12,345 tok/s  ETA 10:00:00");
  EXPECT_EQ(progress_line(state_at(1000), 50), "[=====>    ]  loss 1.2346  ETA 10:00:00");
  EXPECT_EQ(progress_line(state_at(1000), 19), "[=> ]  ETA 10:00:00");
}

TEST(ProgressLine, HasNoValidationBeforeTheFirst) {
  ProgressState state = state_at(1000);
  state.validation_loss.reset();
  EXPECT_EQ(progress_line(state, std::string::npos),
            "step 1000/2000  loss 1.2346  lr 3.00e-03  norm 0.50  12,345 tok/s  ETA 10:00:00");
}

TEST(ProgressLine, HasASteadyBar) {
  for (const std::size_t width : {19, 80, 200}) {
    const std::size_t end = progress_line(state_at(0), width).find(']');
    std::size_t filled = 0;
    for (std::int64_t done = 0; done <= 2000; ++done) {
      const std::string line = progress_line(state_at(done), width);
      ASSERT_EQ(line.find(']'), end);
      const auto now = static_cast<std::size_t>(std::ranges::count(line.substr(0, end), '='));
      ASSERT_GE(now, filled);
      filled = now;
    }
    EXPECT_EQ(filled, end - 1);
  }
}

// The bar has a fifth of the line's width, from 3 to 30 characters. If the line is too long, fields are left
// out in this order: learning rate, norm, tok/s, validation loss, step, loss.
TEST(ProgressLine, GivesWayOneFieldAfterTheOther) {
  const auto line = [](std::size_t width) { return progress_line(state_at(500), width); };
  EXPECT_EQ(line(118),
            "[=====>                 ]  step 500/2000  loss 1.2346  val 1.5000  lr 3.00e-03  norm 0.50  "
            "12,345 tok/s  ETA 10:00:00");
  EXPECT_EQ(line(104),
            "[=====>              ]  step 500/2000  loss 1.2346  val 1.5000  norm 0.50  12,345 tok/s  ETA "
            "10:00:00");
  EXPECT_EQ(line(90),
            "[====>             ]  step 500/2000  loss 1.2346  val 1.5000  12,345 tok/s  ETA 10:00:00");
  EXPECT_EQ(line(74), "[===>          ]  step 500/2000  loss 1.2346  val 1.5000  ETA 10:00:00");
  EXPECT_EQ(line(60), "[===>        ]  step 500/2000  loss 1.2346  ETA 10:00:00");
  EXPECT_EQ(line(45), "[==>      ]  loss 1.2346  ETA 10:00:00");
  EXPECT_EQ(line(10), "[>  ]  ETA");
  EXPECT_TRUE(line(200).starts_with("[=======>                      ]  step 500/2000"));
}

StepReport report_of(std::int64_t step, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = 2;
  report.grad_norm = 3;
  report.learning_rate = 0.5;
  report.seconds.forward = seconds;
  return report;
}

// There is a line for the first step, the last step, every fortieth of the steps, and each step with a
// validation loss.
TEST(Progress, HasALineEveryFortiethPart) {
  testing::internal::CaptureStderr();
  {
    Progress progress(0, 400, 10);
    for (std::int64_t step = 0; step < 400; ++step) {
      progress.step(report_of(step, 0.1), step == 6 ? std::optional(4.0) : std::nullopt, 0.5);
    }
    progress.note("note: a line");
  }
  std::istringstream lines(testing::internal::GetCapturedStderr());
  std::vector<std::string> seen;
  for (std::string line; std::getline(lines, line);) seen.push_back(line.substr(0, line.find("  lr ")));
  ASSERT_EQ(seen.size(), 2 + 40 + 1u);
  EXPECT_EQ(seen[0], "step 1/400  loss 2.0000");
  EXPECT_EQ(seen[1], "step 7/400  loss 2.0000  val 4.0000");
  EXPECT_EQ(seen[2], "step 10/400  loss 2.0000");
  EXPECT_EQ(seen[41], "step 400/400  loss 2.0000");
  EXPECT_EQ(seen[42], "note: a line");
}

// The run resumes at step 100 of 104: 3 steps of 64 tokens take half a second each.
TEST(Progress, CountsTokensSinceItWasMade) {
  testing::internal::CaptureStderr();
  Progress progress(100, 104, 64);
  EXPECT_EQ(progress.tokens_per_second(), 0);
  for (std::int64_t step = 100; step < 103; ++step) progress.step(report_of(step, 0.5), std::nullopt, 1);
  EXPECT_EQ(progress.tokens_per_second(), 128);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("step 101/104  loss 2.0000  lr 5.00e-01  norm 3.00  128 tok/s  ETA 0:00\n"))
      << text;
}

// A thousandth of the work has taken the half second of the first step: the rest takes 500 s, whatever the
// number of steps. The time before the first step, in which files are opened, does not count.
TEST(Progress, TellsTheTimeThatIsLeftAtTheSpeedSoFar) {
  testing::internal::CaptureStderr();
  Progress progress(100, 250, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  progress.step(report_of(100, 0.5), 1.0, 1.0 / 1001);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.ends_with("ETA 8:20\n")) << text;
}

// The steps after the first one follow within a tenth of a second. A note comes with the newest one.
TEST(Progress, ShowsTheLastStepBelowANote) {
  const std::string text = on_a_terminal([] {
    Progress progress(0, 400, 10);
    for (std::int64_t step = 0; step < 4; ++step) progress.step(report_of(step, 0.1), std::nullopt, 0.5);
    progress.note("checkpoint: here");
  });
  const std::size_t note = text.find("checkpoint: here");
  ASSERT_NE(note, std::string::npos);
  EXPECT_NE(text.find("step 4/400", note), std::string::npos) << text;
  EXPECT_EQ(text.find("step 1/400", note), std::string::npos) << text;
}

// A quarter of the tokens has taken 20 s.
TEST(ValidationLine, TellsWhatIsLeft) {
  EXPECT_EQ(validation_line(1024, 4096, 20), "validation  1,024/4,096 tokens  ETA 1:00");
  EXPECT_EQ(validation_line(4096, 4096, 20), "validation  4,096/4,096 tokens  ETA 0:00");
}

TEST(ProgressLine, OfNothingIsEmpty) {
  EXPECT_EQ(progress_line({}, std::string::npos),
            "step 0/1  loss 0.0000  lr 0.00e+00  norm 0.00  0 tok/s  ETA 0:00");
}

TEST(ClockTime, IsInWholeSecondsMinutesAndHours) {
  EXPECT_EQ(clock_time(0), "0:00");
  EXPECT_EQ(clock_time(59.4), "0:59");
  EXPECT_EQ(clock_time(59.5), "1:00");
  EXPECT_EQ(clock_time(754), "12:34");
  EXPECT_EQ(clock_time(3599), "59:59");
  EXPECT_EQ(clock_time(3600), "1:00:00");
  EXPECT_EQ(clock_time(100 * 3600 + 23 * 60 + 7), "100:23:07");
}

TEST(ProgressLine, HasNoBarInAFile) {
  EXPECT_TRUE(
      progress_line(state_at(7), std::string::npos).starts_with("step 7/2000  loss 1.2346  val 1.5000"));
}

}  // namespace
}  // namespace stagegpt::test
