// The sampler, compared with its definition.
#include "common/generation/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <ranges>

#include "common/random/philox.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr int kV = 40;
const std::vector<std::int32_t> kSeen = {3, 5, 5, 8, 39};

// Random logits with ties and with a very improbable token.
std::vector<float> some_logits() {
  const Values values = random_values(9, 0, kV, 2);
  std::vector<float> logits(values.begin(), values.end());
  logits[11] = logits[12] = logits[13] = 1.5f;
  logits[20] = -60;
  logits[39] = 2.5f;
  return logits;
}

// The probabilities by the definition: all steps on the whole sorted vocabulary.
std::map<std::int32_t, double> defined(const SamplingConfig& config) {
  const std::vector<float> logits = some_logits();
  std::vector<std::pair<double, std::int32_t>> order;  // -logit and id: ties are ordered by id
  for (std::int32_t id = 0; id < kV; ++id) {
    double logit = logits[static_cast<std::size_t>(id)];
    if (std::ranges::count(kSeen, id) > 0)
      logit = logit < 0 ? logit * config.repetition_penalty : logit / config.repetition_penalty;
    order.emplace_back(-logit / config.temperature, id);
  }
  std::ranges::sort(order);
  if (config.top_k > 0 && config.top_k < kV) order.resize(static_cast<std::size_t>(config.top_k));
  const auto weight = [&](const auto& token) { return std::exp(order[0].first - token.first); };
  double all = 0;
  for (const auto& token : order) all += weight(token);
  double taken = 0, sum = 0;
  std::map<std::int32_t, double> probabilities;
  for (const auto& token : order) {
    if (config.top_p < 1 && taken >= config.top_p * all) break;
    taken += weight(token);
    probabilities[token.second] = weight(token);
  }
  for (const auto& [id, w] : probabilities) sum += w;
  for (auto& [id, w] : probabilities) w /= sum;
  return probabilities;
}

const std::vector<SamplingConfig> kConfigs = {
    {},
    {.temperature = 0.7},
    {.temperature = 3},
    {.top_k = 1},
    {.top_k = 5},
    {.top_k = kV},
    {.top_k = 1000},
    {.top_p = 0.5},
    {.top_p = 0.95},
    {.top_p = 1e-9},
    {.repetition_penalty = 1.3},
    {.repetition_penalty = 0.8},
    {.repetition_penalty = 1.5, .temperature = 0.8, .top_k = 12, .top_p = 0.9},
};

TEST(Sampler, HasTheProbabilitiesOfItsDefinition) {
  for (const SamplingConfig& config : kConfigs) {
    const auto expected = defined(config);
    const auto got = candidates(some_logits(), kSeen, config);
    EXPECT_EQ(got.size(), expected.size());
    double sum = 0;
    for (const Candidate& candidate : got) {
      ASSERT_TRUE(expected.contains(candidate.id)) << candidate.id;
      EXPECT_NEAR(candidate.probability, expected.at(candidate.id), 1e-12);
      sum += candidate.probability;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

// Bit by bit, so that a text does not depend on where the logits were sorted.
TEST(Sampler, NeedsOnlyTheLogitsThatDecide) {
  const std::vector<float> logits = some_logits();
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, std::greater(), [&](std::int32_t id) { return logits[id]; });
  int few = 0;
  for (const SamplingConfig& config : {SamplingConfig{.temperature = 0},
                                       {.top_k = 1},
                                       {.top_k = 5},
                                       {.temperature = 0.7, .top_k = 9, .top_p = 0.8},
                                       {.repetition_penalty = 1.1, .temperature = 0},
                                       {.top_p = 0.5},
                                       {}}) {
    const std::int64_t k = deciding_logits(config);
    if (k == 0) continue;
    ++few;
    NextLogits largest;
    for (const std::int32_t id : ids | std::views::take(k)) {
      largest.values.push_back(logits[id]);
      largest.ids.push_back(id);
    }
    const auto got = candidates(largest, kSeen, config), expected = candidates(logits, kSeen, config);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].id, expected[i].id);
      EXPECT_EQ(got[i].probability, expected[i].probability);
    }
  }
  EXPECT_EQ(few, 4);
}

TEST(Sampler, AFilterThatKeepsAllTokensChangesNoDraw) {
  const auto ids = [](const SamplingConfig& config) {
    std::vector<std::int32_t> drawn;
    for (std::uint64_t i = 0; i < 100; ++i) {
      drawn.push_back(draw(candidates(some_logits(), kSeen, config), random_uniform({77, 0, 0}, i)));
    }
    return drawn;
  };
  for (const SamplingConfig& config : {SamplingConfig{.top_k = kV}, {.top_k = 1000}, {.top_p = 1}}) {
    EXPECT_EQ(ids(config), ids({}));
  }
}

// A chi-squared test: the sum of (observed - expected)²/expected over all cells. Each token that is expected
// at least five times is a cell; all other tokens are one cell. The number of degrees of freedom, n, is one
// less than the number of cells. The mean is n and the variance 2n. The limit is six standard deviations
// above the mean.
TEST(Sampler, DrawsAreDistributedAsDefined) {
  constexpr int kSamples = 200000;
  std::uint32_t stream = 0;
  for (const SamplingConfig& config : kConfigs) {
    const auto expected = defined(config);
    const auto from = candidates(some_logits(), kSeen, config);
    std::map<std::int32_t, int> drawn;
    ++stream;
    for (std::uint64_t i = 0; i < kSamples; ++i) ++drawn[draw(from, random_uniform({77, stream, 0}, i))];
    double chi_squared = 0, rare_expected = 0, rare_drawn = 0;
    int cells = 0;
    const auto add = [&](double observed, double expectation) {
      chi_squared += (observed - expectation) * (observed - expectation) / expectation;
      ++cells;
    };
    for (const auto& [id, probability] : expected) {
      const double expectation = probability * kSamples;
      const bool rare = expectation < 5;
      rare_expected += rare ? expectation : 0;
      rare_drawn += rare ? drawn[id] : 0;
      if (!rare) add(drawn[id], expectation);
    }
    for (const auto& [id, n] : drawn) EXPECT_TRUE(n == 0 || expected.contains(id)) << id;
    if (rare_expected >= 5) add(rare_drawn, rare_expected);
    const double degrees = cells - 1;
    EXPECT_LE(chi_squared, degrees + 6 * std::sqrt(2 * degrees) + 1e-9) << "configuration " << stream;
  }
}

TEST(Sampler, WithoutTemperatureTakesTheFirstOfTheMostProbable) {
  std::vector<float> logits(kV, -1);
  logits[7] = logits[30] = 4;
  for (const std::int64_t top_k : {0, 3}) {
    const auto only = candidates(logits, {}, {.temperature = 0, .top_k = top_k});
    ASSERT_EQ(only.size(), 1);
    EXPECT_EQ(only[0].id, 7);
    EXPECT_EQ(only[0].probability, 1);
  }
  const std::vector<std::int32_t> seen = {7};
  EXPECT_EQ(candidates(logits, seen, {.repetition_penalty = 2, .temperature = 0})[0].id, 30);
}

TEST(Draw, TakesEachTokenOnItsShareOfTheUnitInterval) {
  const std::vector<Candidate> two = {{4, 0.25}, {9, 0.75}};
  EXPECT_EQ(draw(two, 0), 4);
  EXPECT_EQ(draw(two, std::nextafter(0.25, 0)), 4);
  EXPECT_EQ(draw(two, 0.25), 9);
  EXPECT_EQ(draw(two, std::nextafter(1, 0)), 9);
  // Rounding may make the sum of the probabilities less than 1. A token of probability 0 must not be drawn
  // even then.
  const std::vector<Candidate> short_of_one = {{4, 0.5}, {9, 0.5 - 1e-12}, {11, 0}};
  EXPECT_EQ(draw(short_of_one, std::nextafter(1, 0)), 9);
}

}  // namespace
}  // namespace stagegpt::test
