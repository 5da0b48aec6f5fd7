// The random numbers of generation, compared with independently computed values and tested for independence.
#include <gtest/gtest.h>

#include "common/comm/self_communicator.h"
#include "common/generation/generation.h"
#include "common/model/gpt2.h"
#include "common/profile/peak.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/random/reference.h"
#include "tests/support/statistics.h"

namespace stagegpt::test {
namespace {

constexpr int kVocabulary = 37;

// A model whose weights are zero: after any text, all tokens have the same probability.
class EvenModel {
 public:
  std::vector<std::int32_t> written(std::uint64_t seed, std::uint32_t sample, std::int64_t count) {
    std::vector<std::int32_t> tokens;
    Context context(*backend_, model_, communicator_);
    generate(context, {0}, count, {.seed = seed}, sample, [&](std::size_t, std::int32_t id) {
      tokens.push_back(id);
      return true;
    });
    return tokens;
  }

 private:
  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  SelfCommunicator communicator_;
  Gpt2 model_{*backend_,
              {.vocab_size = kVocabulary, .block_size = 64, .n_layer = 1, .n_head = 1, .n_embd = 4},
              DType::f32,
              1,
              Purpose::inference};
};

TEST(Draws, AreThoseOfTheReference) {
  EvenModel model;
  for (const auto& expected : random_reference("draws")) {
    const auto tokens = expected["tokens"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(model.written(expected["seed"], expected["sample"], std::ssize(tokens)), tokens) << expected;
  }
}

TEST(Draws, AreIndependentOfEachOtherAndOfOtherSamplesAndSeeds) {
  constexpr std::int64_t kTokens = 1000;
  EvenModel model;
  std::vector<std::vector<double>> all;
  std::vector<int> counts(kVocabulary);
  for (const std::uint64_t seed : {1, 2}) {
    for (const std::uint32_t sample : {0, 1}) {
      const auto tokens = model.written(seed, sample, kTokens);
      for (const std::int32_t token : tokens) ++counts[static_cast<std::size_t>(token)];
      all.emplace_back(tokens.begin(), tokens.end());
    }
  }
  EXPECT_LT(std::abs(chi_squared_deviation(counts)), kChiSquaredLimit);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const std::size_t lag : {1, 2, 3, 4}) {
      EXPECT_LT(std::abs(correlation_at(all[i], lag)), kLimit) << i << ", lag " << lag;
    }
    for (std::size_t j = 0; j < i; ++j) EXPECT_LT(std::abs(correlation(all[i], all[j])), kLimit);
  }
}

// The input of benchmarks: uniform random numbers around zero, repeated with a period of 2^16.
TEST(RandomTensor, RepeatsAPeriodOfUniformNumbers) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  constexpr std::int64_t kPeriod = 1 << 16;
  for (const std::int64_t n : {kPeriod - 1, kPeriod, kPeriod + 1, 2 * kPeriod + 3}) {
    const std::vector<float> values = to_host<float>(*backend, random_tensor(*backend, {n}));
    std::vector<int> counts(64);
    for (std::int64_t i = 0; i < std::min(n, kPeriod); ++i)
      ++counts.at(static_cast<std::size_t>((values[i] + 0.5) * 64));
    EXPECT_LT(std::abs(chi_squared_deviation(counts)), kChiSquaredLimit);
    for (std::int64_t i = kPeriod; i < n; ++i) ASSERT_EQ(values[i], values[i - kPeriod]) << i;
    EXPECT_NE(to_host<float>(*backend, random_tensor(*backend, {n}, 1)), values);
    EXPECT_NE(values[kPeriod / 2], values[0]);
    EXPECT_NE(values[kPeriod / 2 + 1], values[1]);
  }
}

}  // namespace
}  // namespace stagegpt::test
