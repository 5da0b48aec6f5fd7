// Text to tokens to batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "common/data/data_loader.h"
#include "common/data/utf8.h"
#include "common/error.h"
#include "common/random/permutation.h"

namespace stagegpt {
namespace {

TEST(Utf8, FollowsTheStandard) {
  for (const char* good : {"a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(utf8_length(good, 0), std::string(good).size()) << good;
  }
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_length(bad, 0), 0u) << bad;
  }
}

TEST(Permutation, IsOneAndDependsOnTheKey) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 17, 64, 1000}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permuted({7, 0, 0}, i, n);
      EXPECT_LT(image, n);
      seen.insert(image);
    }
    EXPECT_EQ(seen.size(), n);
  }
  int moved = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    moved += permuted({7, 0, 0}, i, 1000) != permuted({7, 0, 1}, i, 1000);
  EXPECT_GT(moved, 900);
}

std::vector<std::int32_t> counting(int n) {
  std::vector<std::int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(DataLoader, TargetsAreTheNextTokens) {
  const auto tokens = counting(1000);
  const DataLoader loader(tokens, 10, 1);
  for (const Batch& batch : {loader.shuffled(0, 500), loader.in_order(0, loader.windows_in_order())}) {
    for (std::size_t i = 0; i < batch.ids.size(); ++i) EXPECT_EQ(batch.targets[i], batch.ids[i] + 1);
  }
}

TEST(DataLoader, AnEpochHasEveryWindowOnce) {
  const auto tokens = counting(1003);
  const DataLoader loader(tokens, 10, 1);
  ASSERT_EQ(loader.windows(), 99);
  for (const std::int64_t epoch : {0, 1, 7}) {
    const Batch batch = loader.shuffled(epoch * loader.windows(), loader.windows());
    std::vector<std::int32_t> ids = batch.ids;
    EXPECT_FALSE(std::ranges::is_sorted(ids));
    std::ranges::sort(ids);
    std::vector<std::int32_t> expected(990);
    std::iota(expected.begin(), expected.end(), ids.front());  // one stretch without gap or repeat
    EXPECT_EQ(ids, expected);
  }
}

TEST(DataLoader, OrderDependsOnSeedAndEpochAlone) {
  const auto tokens = counting(1003);
  const DataLoader loader(tokens, 10, 1), same(tokens, 10, 1), other(tokens, 10, 2);
  EXPECT_EQ(loader.shuffled(40, 8).ids, same.shuffled(40, 8).ids);
  EXPECT_NE(loader.shuffled(0, 8).ids, other.shuffled(0, 8).ids);
  EXPECT_NE(loader.shuffled(0, 8).ids, loader.shuffled(loader.windows(), 8).ids);
  // The same samples, whether fetched at once or in parts.
  std::vector<std::int32_t> parts = loader.shuffled(90, 4).ids;
  const auto rest = loader.shuffled(94, 12).ids;
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, loader.shuffled(90, 16).ids);
}

TEST(DataLoader, TakesTheShortestTextThatHasAWindow) {
  const auto tokens = counting(11);
  const DataLoader loader(tokens, 10, 1);
  EXPECT_EQ(loader.windows(), 1);
  EXPECT_EQ(loader.shuffled(5, 1).targets.back(), 10);
  EXPECT_THROW(DataLoader(counting(10), 10, 1), InternalError);
}

}  // namespace
}  // namespace stagegpt
