// Dropout masks of training steps, compared with independently computed values and tested for independence.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "common/base/json.h"
#include "common/generation/generation.h"
#include "common/train/evaluate.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/random/reference.h"
#include "tests/support/small_training.h"
#include "tests/support/statistics.h"

namespace stagegpt::test {
namespace {

constexpr double kP = 0.3;
constexpr std::int64_t kB = 3, kHeads = 3, kHeadSize = 16;

// Which elements an op kept (1) and dropped (0). Keys after their query count as dropped.
struct Mask {
  std::string op;
  std::vector<int> kept;
};

// The mask of a dropout op: its input has no zeros, so each zero of its output is a dropped element. Kept
// elements are scaled by 1/(1-p).
std::vector<int> mask_of_dropout(const std::vector<float>& in, const std::vector<float>& out) {
  std::vector<int> kept(out.size());
  int wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    kept[i] = out[i] != 0;
    wrong += in[i] == 0 || std::abs(out[i] - kept[i] * in[i] / (1 - kP)) > 1e-6 * std::abs(in[i]);
  }
  EXPECT_EQ(wrong, 0);
  return kept;
}

// Sets qkv so that the output of attention shows the mask. Queries and keys are zero, so each of the t+1
// visible keys of query t has the probability 1/(t+1), and 1/(1-p) of that if it is kept. Value t is 1 in
// channel t. The last value has no channel of its own: it is 2 in channel 0.
void make_probabilities_visible(Backend& backend, const Tensor& qkv) {
  const std::int64_t C = kHeads * kHeadSize;
  std::vector<float> values(static_cast<std::size_t>(qkv.numel()));
  for (std::int64_t b = 0; b < kB; ++b) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t t = 0; t < kSmallT; ++t) {
        const std::int64_t channel = t % kHeadSize;
        values[((b * kSmallT + t) * 3 + 2) * C + head * kHeadSize + channel] = t < kHeadSize ? 1.0f : 2.0f;
      }
    }
  }
  upload<float>(backend, qkv, values);
}

// The mask (B,NH,T,T), recovered from the output (B,T,C) of attention over such values.
std::vector<int> mask_of_attention(const std::vector<float>& out) {
  std::vector<int> kept;
  int wrong = 0;
  for (std::int64_t row = 0; row < kB * kHeads * kSmallT; ++row) {
    const std::int64_t b = row / (kHeads * kSmallT), head = row / kSmallT % kHeads, t = row % kSmallT;
    for (std::int64_t key = 0; key < kSmallT; ++key) {
      const float sum = out[(b * kSmallT + t) * kHeads * kHeadSize + head * kHeadSize + key % kHeadSize];
      const double bits = sum * static_cast<double>(t + 1) * (1 - kP);
      wrong += std::abs(bits - std::round(bits)) > 1e-4;
      kept.push_back(key < kHeadSize ? static_cast<int>(std::lround(bits)) & 1
                                     : static_cast<int>(std::lround(bits)) >> 1);
    }
  }
  EXPECT_EQ(wrong, 0);
  return kept;
}

// The masks of the first steps of a training, in the order of its ops.
std::vector<std::vector<Mask>> masks_of_steps(int steps, std::uint64_t seed = 1337) {
  TrainerConfig config = small_config(kB, 1);
  config.seed = seed;
  SmallTraining run(make_cpu_backend(2), config, random_tokens(1000), kP);
  Backend& backend = *run.backend;
  std::vector<std::vector<Mask>> masks(static_cast<std::size_t>(steps));
  for (std::vector<Mask>& of_step : masks) {
    run.trainer.step([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
      const Tensor& out = outs[0].value();
      if (op == "dropout") {
        of_step.push_back({"dropout", mask_of_dropout(to_host<float>(backend, inputs[0].value()),
                                                      to_host<float>(backend, out))});
      } else if (op == "attention") {
        of_step.push_back({"attention", mask_of_attention(to_host<float>(backend, out))});
      } else if (op == "linear" && out.shape()[-1] == 3 * kHeads * kHeadSize) {
        make_probabilities_visible(backend, out);
      } else if (op == "linear" && out.shape()[-1] == kHeads * kHeadSize) {
        backend.fill(out, 1);  // without zeros, so that the dropout's mask is visible
      }
    });
  }
  return masks;
}

// Bits as hexadecimal digits, four bits per digit.
std::string hexadecimal(const std::vector<int>& bits) {
  std::string digits;
  for (std::size_t i = 0; i < bits.size(); i += 4) {
    int digit = 0;
    for (std::size_t bit = i; bit < i + 4; ++bit) digit = 2 * digit + (bit < bits.size() ? bits[bit] : 0);
    digits += "0123456789abcdef"[digit];
  }
  return digits;
}

TEST(Masks, AreThoseOfTheReference) {
  const nlohmann::json expected = random_reference("masks");
  const auto masks = masks_of_steps(2);
  ASSERT_EQ(masks.size(), expected.size());
  for (std::size_t step = 0; step < masks.size(); ++step) {
    ASSERT_EQ(masks[step].size(), expected[step].size());
    for (std::size_t i = 0; i < masks[step].size(); ++i) {
      EXPECT_EQ(masks[step][i].op, expected[step][i]["op"].get<std::string>());
      EXPECT_EQ(hexadecimal(masks[step][i].kept), expected[step][i]["kept"].get<std::string>())
          << "step " << step << ", op " << i;
    }
  }
}

// The mask of an op for each sequence, as numbers. For attention, only the visible keys of each query.
std::vector<std::vector<double>> by_sequence(const Mask& mask) {
  std::vector<std::vector<double>> sequences(kB);
  const std::size_t length = mask.kept.size() / kB;
  for (std::size_t i = 0; i < mask.kept.size(); ++i) {
    const std::size_t key = i % kSmallT, query = i / kSmallT % kSmallT;
    if (mask.op == "dropout" || key <= query) sequences[i / length].push_back(mask.kept[i]);
  }
  return sequences;
}

TEST(Masks, AreIndependentOfOtherOpsStepsSequencesAndSeeds) {
  std::vector<std::vector<double>> all;
  for (const std::uint64_t seed : {1, 2}) {
    for (const auto& step : masks_of_steps(2, seed)) {
      for (const Mask& mask : step) {
        for (auto& sequence : by_sequence(mask)) all.push_back(std::move(sequence));
      }
    }
  }
  ASSERT_EQ(all.size(), 2 * 2 * 7 * kB);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto n = static_cast<double>(all[i].size());
    double kept = 0;
    for (const double bit : all[i]) kept += bit;
    EXPECT_NEAR(kept / n, 1 - kP, kLimit * std::sqrt(kP * (1 - kP) / n)) << i;
    for (const std::size_t lag : {1, 2, 3, 4, 17, 48}) {
      EXPECT_LT(std::abs(correlation_at(all[i], lag)), kLimit) << i << ", lag " << lag;
    }
    for (std::size_t j = 0; j < i; ++j) {
      const std::size_t both = std::min(all[i].size(), all[j].size());
      EXPECT_LT(std::abs(correlation(std::span(all[i]).first(both), std::span(all[j]).first(both))), 5.5)
          << i << " and " << j;  // 3,500 pairs; probability 1 in 3e7 for each
    }
  }
}

// Validation and generation do not use dropout: the results do not depend on its probability.
TEST(Masks, AreForTrainingOnly) {
  SmallTraining with(make_cpu_backend(2), small_config(kB, 1), random_tokens(500), 0.5),
      without(make_cpu_backend(2), small_config(kB, 1), random_tokens(500));
  const auto evaluation = [](SmallTraining& run) {
    const WindowSample all = validation_sample(run.data.tokens().size(), run.data.seq_len(), 0);
    const Evaluation result = *evaluate(run.communicator.group(), *run.backend, run.model, run.data.tokens(),
                                        sampled_windows(all, run.data.seq_len()), {.batch_size = 4});
    return std::pair(result.loss, result.accuracy);
  };
  EXPECT_EQ(evaluation(with), evaluation(without));
  const auto next_logits = [](SmallTraining& run) {
    Context context(*run.backend, run.model, run.communicator);
    return context.next_logits(std::vector<Tokens>{{1, 2, 3, 4, 5}});
  };
  EXPECT_EQ(next_logits(with), next_logits(without));
  EXPECT_NE(with.trainer.step().loss, without.trainer.step().loss);
}

}  // namespace
}  // namespace stagegpt::test
