#include <cmath>
#include <limits>

#include "common/logging/tensorboard_log.h"
#include "tests/support/event_file.h"

namespace stagegpt::test {
namespace {

TEST(TensorBoardRecords, HaveTheKnownChecksum) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  const std::uint32_t crc = 0xE3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), (crc >> 15 | crc << 17) + 0xa282ead8u);
}

// The expected bytes are those of TensorFlow's writer.
TEST(TensorBoardRecords, BeginWithTheVersion) {
  const std::string time = std::string("\x09") + std::string(6, '\0') + "\xf0\x3f";  // 1.0
  EXPECT_EQ(records_of(version_record(1)),
            std::vector{time + std::string("\x10\0", 2) + "\x1a\x0d" + "brain.Event:2"});
}

TEST(TensorBoardRecords, HoldScalars) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Scalar> scalars = {{"train/loss", 2.5}, {"speed/tokens_per_second", 1e9}, {"x", nan}};
  for (const std::int64_t step : {1L, 127L, 128L, 1000000000L}) {
    const auto events = events_of(scalars_record(1234.5, step, scalars));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].wall_time, 1234.5);
    EXPECT_EQ(events[0].step, step);
    EXPECT_EQ(events[0].scalars.at("train/loss"), 2.5f);
    EXPECT_EQ(events[0].scalars.at("speed/tokens_per_second"), 1e9f);
    EXPECT_TRUE(std::isnan(events[0].scalars.at("x")));
    EXPECT_FALSE(events[0].restart);
  }
}

TEST(TensorBoardRecords, TellOfARestart) {
  const auto events = events_of(restart_record(1, 301));
  EXPECT_TRUE(events.at(0).restart);
  EXPECT_EQ(events.at(0).step, 301);
}

TEST(TensorBoardRecords, HoldTextAsItIs) {
  const auto text = [](std::string_view given) {
    return events_of(text_record(1, 5, "sample", given)).at(0).texts.at("sample");
  };
  EXPECT_EQ(text("a *b*\n<i>c"), "    a *b*\n    <i>c");
  EXPECT_EQ(text("é\xff"
                 "e\xc3"),
            "    é\uFFFDe\uFFFD");
  const std::string longer(1000, 'x');
  EXPECT_EQ(text(longer), "    " + longer);
}

}  // namespace
}  // namespace stagegpt::test
