// Windows of an evaluation, compared with their definition.
#include "common/data/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/error.h"

namespace stagegpt::test {
namespace {

// The definition, a window at a time: it ends at the end of the text or after `length` predictions, and
// counts what earlier windows have not predicted.
std::vector<Window> defined(std::int64_t tokens, std::int64_t length, std::int64_t stride) {
  std::vector<Window> windows;
  std::int64_t predicted = 0;
  for (std::int64_t begin = 0; predicted < tokens - 1; begin += stride) {
    const std::int64_t end = std::min(begin + length, tokens - 1);
    windows.push_back({begin, end - begin, end - predicted});
    predicted = end;
  }
  return windows;
}

TEST(StridedWindows, AreThoseOfTheirDefinition) {
  for (std::int64_t tokens = 2; tokens < 40; ++tokens) {
    for (std::int64_t length = 1; length < 12; ++length) {
      for (std::int64_t stride = 1; stride <= length; ++stride) {
        const Windows windows = strided_windows(tokens, length, stride);
        std::vector<Window> all;
        for (std::int64_t i = 0; i < windows.count; ++i) all.push_back(windows.at(i));
        ASSERT_EQ(all == defined(tokens, length, stride), true) << tokens << ' ' << length << ' ' << stride;
      }
    }
  }
}

TEST(StridedWindows, PredictEachTokenOnceWithAsMuchContextAsPromised) {
  constexpr std::int64_t kTokens = 1000, kLength = 64, kStride = 24;
  const Windows windows = strided_windows(kTokens, kLength, kStride);
  std::vector<int> times(kTokens);
  for (std::int64_t i = 0; i < windows.count; ++i) {
    const Window w = windows.at(i);
    for (std::int64_t t = w.first + w.length - w.scored + 1; t <= w.first + w.length; ++t) {
      ++times[t];
      EXPECT_GE(t - w.first, std::min(t, kLength - kStride + 1)) << t;
    }
  }
  EXPECT_EQ(times[0], 0);
  EXPECT_EQ(std::ranges::count(times, 1), kTokens - 1);
}

TEST(StridedWindows, LeaveNothingOut) {
  EXPECT_THROW(strided_windows(10, 4, 5), InternalError);
  EXPECT_THROW(strided_windows(10, 4, 0), InternalError);
  EXPECT_THROW(strided_windows(1, 4, 4), InternalError);
}

TEST(SampledWindows, CountAllTheirPredictions) {
  const Windows windows = sampled_windows({10, 3}, 8);
  ASSERT_EQ(windows.count, 3);
  EXPECT_EQ(windows.at(1), (Window{3 * 8, 8, 8}));
  EXPECT_EQ(windows.at(2), (Window{6 * 8, 8, 8}));
}

}  // namespace
}  // namespace stagegpt::test
