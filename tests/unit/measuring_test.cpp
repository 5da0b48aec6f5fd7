// The ops that measurements call on a backend.
#include <gtest/gtest.h>

#include <optional>

#include "common/backend/profiler.h"
#include "common/comm/self_communicator.h"
#include "common/model/gpt2.h"
#include "common/profile/peak.h"
#include "common/train/memory_plan.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/tensors.h"
#include "tools/bench/decode_bench.h"
#include "tools/bench/gemm_bound.h"

namespace stagegpt::test {
namespace {

const Gpt2Config kConfig{.vocab_size = 101, .block_size = 16, .n_layer = 2, .n_head = 2, .n_embd = 32};

Gpt2Config untied_config() {
  Gpt2Config config = kConfig;
  config.n_inner = 31;
  config.tie_word_embeddings = false;
  return config;
}

class Measuring : public testing::Test {
 protected:
  // Starts a new profile of the ops.
  void start_profiler() { profiler_.emplace(*backend_); }
  // The calls of an op since start_profiler().
  Profiler::Entry asked(const std::string& name) const {
    for (const Profiler::Entry& entry : profiler_->entries()) {
      if (entry.name == name) return entry;
    }
    return {};
  }

  const std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  std::optional<Profiler> profiler_;
};

TEST_F(Measuring, OfAPeakTriesEachSizeSomeTimes) {
  const auto measured = [&](GemmEffort effort) {
    start_profiler();
    return measure_peak(*backend_, effort);
  };
  // The search ends with the first product that takes long enough.
  const Peak small = measured({.smallest = 16, .long_enough = 1e-12, .tries = 3, .seconds = 0});
  EXPECT_EQ(small.name, "measured GEMM 16");
  EXPECT_EQ(asked("linear_forward").calls, 3);
  EXPECT_EQ(asked("linear_forward").work.flops, 3 * 2.0 * 16 * 16 * 16);
  EXPECT_GT(small.flops_per_second, 0);
  EXPECT_EQ(measured({.smallest = 16, .long_enough = 0}).flops_per_second, 0);
  EXPECT_EQ(measured({.smallest = 16384, .long_enough = 1}).name, "");
  // The size is doubled until a product takes long enough.
  measured({.smallest = 8, .long_enough = 1e-6, .tries = 1});
  const std::int64_t sizes = asked("linear_forward").calls;
  double flops = 0;
  for (std::int64_t i = 0, n = 8; i < sizes; ++i, n *= 2) flops += 2.0 * static_cast<double>(n * n * n);
  EXPECT_EQ(asked("linear_forward").work.flops, flops);
}

TEST_F(Measuring, OfAPeakBeginsWithSmallerMatricesWhereProductsAreSlow) {
  GemmEffort effort{.smallest = 192, .long_enough = 1e-12, .tries = 1, .affordable = 1e-12};
  EXPECT_EQ(measure_peak(*backend_, effort).name, "measured GEMM 48");
  effort.affordable = 1e3;
  EXPECT_EQ(measure_peak(*backend_, effort).name, "measured GEMM 192");
  effort.affordable = 0;
  EXPECT_EQ(measure_peak(*backend_, effort).name, "measured GEMM 192");
}

TEST_F(Measuring, OfAPeakGoesOnForItsTime) {
  start_profiler();
  measure_peak(*backend_, {.smallest = 4, .long_enough = 1e-12, .tries = 1, .seconds = 0.1});
  EXPECT_GT(asked("linear_forward").calls, 1);
}

// Two blocks with four matrices each, and the head, whose rows are padded to 128; two micro-steps of 48
// tokens.
TEST_F(Measuring, OfTheBoundDoesTheProductsOfAStep) {
  Gpt2 model(*backend_, kConfig);
  model.parameters().initialize(1);
  const AdamW optimizer(*backend_, model.parameters(), AdamWConfig());
  const GemmBound bound(*backend_, model, optimizer, {.tokens = 48, .micro_steps = 2});
  const auto weights = to_values(*backend_, model.parameters().weights());
  start_profiler();
  bound.products();
  bound.adamw();
  const double matrices = 2 * 12 * 32 * 32 + 128 * 32;
  EXPECT_EQ(asked("linear_forward").calls, 2 * (2 * 4 + 1));
  EXPECT_EQ(asked("linear_forward").work.flops, 2 * 2 * 48 * matrices);
  EXPECT_EQ(asked("linear_backward").calls, 2 * (2 * 4 + 1));
  EXPECT_EQ(asked("linear_backward").work.flops, 2 * 2 * 2 * 48 * matrices);
  EXPECT_EQ(asked("adamw").calls, 1);
  EXPECT_EQ(profiler_->entries().size(), 3u);
  EXPECT_EQ(to_values(*backend_, model.parameters().weights()), weights);  // the learning rate is 0
}

// The products of an untied head's matrix take the place of those of wte, which only looks rows up.
TEST_F(Measuring, OfTheBoundOfAnUntiedHeadLeavesOutTheEmbedding) {
  Gpt2 model(*backend_, untied_config());
  model.parameters().initialize(1);
  const AdamW optimizer(*backend_, model.parameters(), AdamWConfig());
  const GemmBound bound(*backend_, model, optimizer, {.tokens = 48, .micro_steps = 1});
  start_profiler();
  bound.products();
  EXPECT_EQ(asked("linear_forward").calls, 2 * 4 + 1);
  EXPECT_EQ(asked("linear_forward").work.flops, 2.0 * 48 * (2 * (4 * 32 + 2 * 31) * 32 + 128 * 32));
}

struct Written {
  DecodeReport report;
  std::vector<std::int64_t> progress;
};

Written write(Backend& backend, const DecodeBenchConfig& config, const Gpt2Config& gpt2 = kConfig,
              DType matrices = DType::f32) {
  Gpt2 model(backend, gpt2, DType::f32, 1, Purpose::inference);
  model.parameters().initialize(1);
  if (matrices != DType::f32) model.narrow_matrices(matrices);
  Written written;
  written.report = bench_decoding(backend, model, config, [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, config.tokens);
    written.progress.push_back(done);
  });
  return written;
}

TEST_F(Measuring, OfWritingTimesTokensAndReadsOfMemory) {
  start_profiler();
  const auto [report, progress] = write(*backend_, {.tokens = 5, .warmup = 2});
  EXPECT_EQ(report.token_ms.size(), 5);
  EXPECT_EQ(progress, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(asked("embedding_forward").calls, 2 + 5);
  constexpr double kSum = 8;                  // the result, f64
  EXPECT_EQ(asked("squared_norm").calls, 2);  // before the second and the sixth token
  EXPECT_EQ(asked("squared_norm").work.bytes, 2 * (256.0 * (1 << 20) + kSum));
  EXPECT_EQ(report.peak_bytes, plan_generation(kConfig, DType::f32));
  EXPECT_GT(report.memory_bytes_per_second, 1e7);  // of any memory
  EXPECT_FALSE(report.load);
}

// Elements read per token. Matrices: 128 rows of the head, and 12 C² per block. Others: C, 13 C per block,
// and 2 C. Also a key and a value of each token of the context.
TEST_F(Measuring, OfWritingCountsTheBytesOfAToken) {
  const double C = 32, L = 2, matrices = 128 * C + L * 12 * C * C, others = C + L * 13 * C + 2 * C;
  const auto bytes = [&](std::int64_t tokens, std::int64_t warmup, DType matrices_in) {
    return write(*backend_, {.tokens = tokens, .warmup = warmup}, kConfig, matrices_in)
        .report.bytes_per_token;
  };
  const double f32 = 4 * (matrices + others), row = 2 * 4 * C * L;
  EXPECT_EQ(bytes(1, 3, DType::f32), f32 + row * 4);
  EXPECT_EQ(bytes(3, 0, DType::f32), f32 + row * 3);  // contexts of 2, 3 and 4: one untimed token is first
  EXPECT_EQ(bytes(2, 15, DType::f32), f32 + row * (16 + 1) / 2);  // 16, then 1: a full context is cleared
  EXPECT_EQ(bytes(1, 3, DType::bf16), 2 * matrices + 4 * others + row * 4);
  const double scales = 4 * (128 + L * (3 + 1 + 4 + 1) * C);
  EXPECT_EQ(bytes(1, 3, DType::i8), matrices + scales + 4 * others + row * 4);
  // An untied head: one row of wte in addition. Its MLP has 31 columns instead of 128.
  const double narrower = matrices + C - L * 2 * 97 * C, biases = others - L * 97;
  const Written written = write(*backend_, {.tokens = 1, .warmup = 3}, untied_config(), DType::bf16);
  EXPECT_EQ(written.report.bytes_per_token, 2 * narrower + 4 * biases + row * 4);
}

}  // namespace
}  // namespace stagegpt::test
