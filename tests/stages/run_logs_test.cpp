// The logs of a run that is resumed: metrics.jsonl, and TensorBoard's event files.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/logging/metrics_log.h"
#include "common/logging/tensorboard_log.h"
#include "tests/support/event_file.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class MetricsFile : public testing::Test {
 protected:
  // The content of metrics.jsonl after a run with the content `text` was resumed after `steps_done` steps.
  // Notes are stored in notes_.
  std::string kept_of(const std::string& text, std::int64_t steps_done) {
    scratch_.write("metrics.jsonl", text);
    testing::internal::CaptureStderr();
    const MetricsLog log(path_, steps_done);
    notes_ = testing::internal::GetCapturedStderr();
    return read_bytes(path_);
  }

  const ScratchDirectory scratch_;
  const fs::path path_ = scratch_.path() / "metrics.jsonl";
  std::string notes_;
};

TEST_F(MetricsFile, BeginsEachLineWithItsVersion) {
  MetricsLog log(path_, 0);
  log.add({{"step", 1}, {"loss", 2.5}});
  log.add({{"step", 2}});
  log.sync();
  EXPECT_EQ(read_bytes(path_),
            "{\"version\":4,\"step\":1,\"loss\":2.5}\n"
            "{\"version\":4,\"step\":2}\n");
}

TEST_F(MetricsFile, KeepsTheLinesOfStepsThatAreDone) {
  const std::string one = "{\"step\":1}\n", two = "{\"step\":2,\"loss\":1}\n", three = "{\"step\":3}\n";
  EXPECT_EQ(kept_of(one + two + three, 2), one + two);
  EXPECT_EQ(kept_of(one + two + three, 3), one + two + three);
  EXPECT_EQ(kept_of(one + two + three, 0), "");
  EXPECT_EQ(notes_, "");
  // One line per step, in order. Duplicate lines, incomplete lines and lines without a step are removed.
  EXPECT_EQ(kept_of(one + one + two + one + two, 2), one + two);
  EXPECT_EQ(kept_of("[1]\n" + one + "{\"step\":\n{}\n{\"step\":0}\n" + two + "{\"step\":3}", 3), one + two);
}

TEST_F(MetricsFile, CountsTheSecondsOfTheStepsThatItKeeps) {
  scratch_.write("metrics.jsonl",
                 "{\"step\":1,\"seconds\":0.5,\"validation_seconds\":0.25}\n{\"step\":2,\"seconds\":2}\n{"
                 "\"step\":2,\"seconds\":4}\n"
                 "{\"step\":3,\"seconds\":8}\n");
  EXPECT_EQ(MetricsLog(path_, 2).seconds_before().training, 2.5);
  EXPECT_EQ(MetricsLog(path_, 2).seconds_before().validation, 0.25);
  EXPECT_EQ(MetricsLog(path_, 0).seconds_before().training, 0);
  EXPECT_EQ(kept_of("{\"step\":1,\"seconds\":null}\n", 1), "{\"step\":1,\"seconds\":null}\n");
}

TEST_F(MetricsFile, SaysHowManyLinesItLacks) {
  EXPECT_EQ(kept_of("{\"step\":2}\n{\"step\":5}\n{\"step\":9}\n", 5), "{\"step\":2}\n{\"step\":5}\n");
  EXPECT_EQ(notes_, concat("note: ", path_, " lacks 3 of the steps up to 5\n"));
  fs::remove(path_);
  testing::internal::CaptureStderr();
  const MetricsLog log(path_, 4);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            concat("note: ", path_, " lacks 4 of the steps up to 4\n"));
}

TEST(EventFiles, AreNumberedBehindThoseThatAreThere) {
  const ScratchDirectory scratch;
  for (const char* name : {"events.out.tfevents.000041", "events.out.tfevents.000007",
                           "events.out.tfevents.x", "events.000099", "other.000098"}) {
    scratch.write(name, "theirs");
  }
  std::vector<std::string> reports;
  const auto report = [&](const std::string& text) { reports.push_back(text); };
  const double before =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  {
    TensorBoardLog log(scratch.path(), 12, report);
    EXPECT_FALSE(fs::exists(scratch.path() / "events.out.tfevents.000042")) << "nothing to tell yet";
    log.add(13, std::vector<Scalar>{{"train/loss", 2.5}});
    log.add_text(14, "sample", "abc");
  }
  const auto events = events_of(read_bytes(scratch.path() / "events.out.tfevents.000042"));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[1].restart);
  EXPECT_EQ(events[1].step, 13);
  EXPECT_EQ(events[2].step, 13);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"train/loss", 2.5f}}));
  EXPECT_EQ(events[3].step, 14);
  EXPECT_EQ(events[3].texts, (std::map<std::string, std::string>{{"sample", "    abc"}}));
  for (const EventRecord& event : events) EXPECT_GE(event.wall_time, before);
  EXPECT_EQ(reports, std::vector<std::string>());
}

// The expected bytes are those of TensorFlow's writer.
TEST(EventFiles, HaveTheBytesOfTextsAndRestarts) {
  using namespace std::string_literals;
  const std::string time = "\x09\0\0\0\0\0\0\xf0\x3f"s;  // wall_time 1.0
  EXPECT_EQ(records_of(restart_record(1, 3)), std::vector{time + "\x10\x03" + "\x3a\x02\x08\x01"});
  const std::string tensor = "\x42\x0b\x08\x07\x12\x00\x42\x05    x"s;
  const std::string metadata = "\x4a\x0a\x0a\x06\x0a\x04text\x20\x02"s;
  const std::string value = "\x0a\x01t"s + tensor + metadata;
  const std::string summary = "\x0a"s + static_cast<char>(value.size()) + value;
  EXPECT_EQ(records_of(text_record(1, 3, "t", "x")),
            std::vector{time + "\x10\x03" + "\x2a" + static_cast<char>(summary.size()) + summary});
}

}  // namespace
}  // namespace stagegpt::test
