// When and where a job on bytes shows its progress.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/io/work_progress.h"
#include "tests/support/on_a_terminal.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kMegabyte = 1000000, kTotal = 60 * kMegabyte;

// A job of 60 MB at 2 MB/s, which reports its progress at each of these times after its beginning.
void run_job(const std::vector<double>& seconds) {
  const ByteProgress::Time start{};
  ByteProgress progress("train", start);
  for (const double after : seconds) {
    const auto since = std::chrono::duration<double>(after);
    progress.at(start + std::chrono::duration_cast<ByteProgress::Time::duration>(since),
                static_cast<std::int64_t>(after * 2 * kMegabyte), kTotal);
  }
}

TEST(ByteProgress, IsALineEveryTenSecondsInAFile) {
  testing::internal::CaptureStderr();
  run_job({0.5, 5, 9.9, 10, 15, 19.9, 20.5, 30});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "train  20.0 / 60.0 MB  2.0 MB/s  ETA 0:20\n"
            "train  41.0 / 60.0 MB  2.0 MB/s  ETA 0:10\n");
}

// Each line replaces the one before; the last line ends with a line break.
TEST(ByteProgress, IsRewrittenTenTimesASecondOnATerminal) {
  const std::string rewritten = "\r\x1b[J";
  EXPECT_EQ(on_a_terminal([] {
              run_job({0.5, 1, 1.05, 1.125, 30});
            }),
            rewritten + "train  2.0 / 60.0 MB  2.0 MB/s  ETA 0:29" +      //
                rewritten + "train  2.2 / 60.0 MB  2.0 MB/s  ETA 0:29" +  //
                rewritten + "train  60.0 / 60.0 MB  2.0 MB/s  ETA 0:00\r\n");
  EXPECT_EQ(on_a_terminal([] { run_job({0.5, 0.9}); }), "");
}

// A measurement of 60 steps, with two steps per second.
void run_steps(const std::vector<double>& seconds, const std::string& part = "step") {
  const StepCounter::Time start{};
  StepCounter counter(start, part);
  for (const double after : seconds) {
    const auto since = std::chrono::duration<double>(after);
    counter.at(start + std::chrono::duration_cast<StepCounter::Time::duration>(since),
               static_cast<std::int64_t>(2 * after), 60);
  }
}

TEST(StepCounter, IsALineEveryTenSecondsInAFile) {
  testing::internal::CaptureStderr();
  run_steps({0.5, 5, 9.5, 10, 15, 19.5, 20.5, 30});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "step 20/60  ETA 0:20\nstep 41/60  ETA 0:10\n");
}

TEST(StepCounter, NamesWhatItCounts) {
  testing::internal::CaptureStderr();
  run_steps({10}, "window");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "window 20/60  ETA 0:20\n");
}

TEST(StepCounter, IsRewrittenAfterEachStepOnATerminal) {
  const std::string rewritten = "\r\x1b[J";
  EXPECT_EQ(on_a_terminal([] {
              run_steps({0.5, 1, 1.5, 30});
            }),
            rewritten + "step 2/60  ETA 0:29" + rewritten + "step 3/60  ETA 0:29" + rewritten +
                "step 60/60  ETA 0:00\r\n");
}

void set_width(unsigned short columns) {
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  ioctl(STDERR_FILENO, TIOCSWINSZ, &size);
}

// A line has one column less than the window. If the window becomes narrower, the line occupies several rows,
// and all of them are replaced.
TEST(StatusLine, FitsItsWindow) {
  const auto line = [](std::size_t width) { return std::string(width, 'x'); };
  const std::string rewritten = "\r\x1b[J";
  EXPECT_EQ(on_a_terminal([&] {
              StatusLine status;
              EXPECT_TRUE(status.is_terminal());
              set_width(21);
              status.show(false, line);
              set_width(6);
              status.show(false, line);
              set_width(5);
              status.print_above("note");
              set_width(1);  // too narrow: 80 columns are assumed
              status.show(false, [](std::size_t width) { return std::to_string(width); });
            }),
            rewritten + std::string(20, 'x') +                  //
                "\x1b[3A" + rewritten + std::string(5, 'x') +   // 20 characters in rows of 6
                rewritten + "note\r\n" + std::string(5, 'x') +  // 5 in one row of 5
                rewritten + "79\r\n");
}

TEST(StatusLine, IsLinesOnATerminalThatRewritesNothing) {
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(on_a_terminal([] {
              StatusLine status;
              EXPECT_FALSE(status.is_terminal());
              status.show(true, [](std::size_t) { return std::string("shown"); });
            }),
            "shown\r\n");
  unsetenv("TERM");
}

TEST(StatusLine, IsLinesInAFile) {
  testing::internal::CaptureStderr();
  {
    StatusLine status;
    EXPECT_FALSE(status.is_terminal());
    status.show(false, [](std::size_t) { return std::string("hidden"); });
    status.show(true, [](std::size_t width) { return concat(width == std::string::npos); });
    status.print_above("note");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "1\nnote\n");
}

}  // namespace
}  // namespace stagegpt::test
