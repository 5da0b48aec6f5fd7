// The order of samples, compared with independently computed values and tested for randomness.
#include <gtest/gtest.h>

#include <numeric>

#include "common/data/data_loader.h"
#include "common/random/permutation.h"
#include "tests/random/reference.h"
#include "tests/support/statistics.h"

namespace stagegpt::test {
namespace {

std::vector<std::int32_t> counting(std::int64_t n) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(Order, IsThatOfTheReference) {
  for (const auto& expected : random_reference("order")) {
    const DataLoader loader(counting(expected["tokens"]), expected["seq_len"], expected["seed"]);
    std::vector<std::int64_t> starts;
    for (const auto& sample : expected["samples"]) starts.push_back(loader.shuffled(sample, 1).ids[0]);
    EXPECT_EQ(starts, expected["starts"].get<std::vector<std::int64_t>>()) << expected;
  }
}

// Correlations of a window's number with the next window's number, and with the number at the same position
// of another epoch or seed. Apart from about -1/n for n windows, they must be those of independent numbers.
TEST(Order, HasNoPattern) {
  constexpr std::int64_t kWindows = 3000;
  const auto epoch = [](std::uint64_t seed, std::int64_t number) {
    const DataLoader loader(counting(kWindows + 2), 1, seed);
    const std::vector<std::int32_t> starts = loader.shuffled(number * kWindows, kWindows).ids;
    return std::vector<double>(starts.begin(), starts.end());
  };
  ASSERT_EQ(DataLoader(counting(kWindows + 2), 1, 1).windows(), kWindows);
  const std::vector<double> in_order = [] {
    const auto tokens = counting(kWindows);
    return std::vector<double>(tokens.begin(), tokens.end());
  }();
  std::vector<std::vector<double>> all = {in_order};
  for (const std::uint64_t seed : {1, 2}) {
    for (const std::int64_t number : {0, 1, 2}) all.push_back(epoch(seed, number));
  }
  for (std::size_t i = 1; i < all.size(); ++i) {
    for (const std::size_t lag : {1, 2, 3, 4, 64}) {
      EXPECT_LT(std::abs(correlation_at(all[i], lag)), kLimit) << i << ", lag " << lag;
    }
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_LT(std::abs(correlation(all[i], all[j])), kLimit) << i << " and " << j;
    }
  }
}

TEST(Order, PutsEachWindowAnywhere) {
  constexpr std::uint64_t kWindows = 40, kEpochs = 4000;
  for (const std::uint64_t place : {std::uint64_t{0}, kWindows / 2, kWindows - 1}) {
    std::vector<int> counts(kWindows);
    for (std::uint32_t epoch = 0; epoch < kEpochs; ++epoch)
      ++counts[permuted({3, 1, epoch}, place, kWindows)];
    EXPECT_LT(std::abs(chi_squared_deviation(counts)), kChiSquaredLimit) << place;
  }
}

// Each epoch begins at a random offset, so that the text is not cut at the same positions in every epoch.
TEST(Order, BeginsEachEpochAnywhere) {
  constexpr std::int64_t kT = 40, kEpochs = 4000, kWindows = 3;
  const DataLoader loader(counting(kT * (kWindows + 1) + kT), kT, 5);
  ASSERT_EQ(loader.windows(), kWindows);
  std::vector<int> counts(2 * kT);
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::int32_t least = INT32_MAX;
    for (std::int64_t i = 0; i < kWindows; ++i)
      least = std::min(least, loader.shuffled(epoch * kWindows + i, 1).ids[0]);
    ++counts.at(static_cast<std::size_t>(least));
  }
  EXPECT_LT(std::abs(chi_squared_deviation(counts)), kChiSquaredLimit);
}

}  // namespace
}  // namespace stagegpt::test
