// Ops of inference on every backend: attention with a KV cache, and matrices in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <ranges>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/linear.h"
#include "common/autograd/ops/norm_linear.h"
#include "common/backend/ops/draw_tokens.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/largest_logits.h"
#include "common/generation/sampler.h"
#include "common/tensor/half_floats.h"
#include "common/tensor/quantised_rows.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/backends.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// Calls `test` for every dtype of the backends that run models: the others have the same kernels of inference
// as one of these. `rounding` is BackendUnderTest::rounding.
void on_every_backend(const std::function<void(Backend&, DType, double rounding)>& test) {
  for (const BackendUnderTest& backend : backends_under_test()) {
    if (!backend.runs_models() || (kSanitized && backend.brief)) continue;
    for (const DType dtype : backend.dtypes) {
      SCOPED_TRACE(concat(backend.name, ' ', dtype));
      test(*backend.make(), dtype, backend.rounding);
    }
  }
}

struct CachedCase {
  std::int64_t B, P;
  int NH;
  std::int64_t HS;
  std::vector<std::int64_t> parts;  // number of tokens of each call
  double scale = 0.3;
};

// The output (B,T,C) of attention in f64, computed for whole sequences by the op that training uses.
Values whole_attention(const CachedCase& c, std::int64_t T, const Values& qkv) {
  const auto reference = make_naive_backend();
  const std::int64_t C = c.NH * c.HS;
  const Tensor out = reference->allocate(DType::f64, {c.B, T, C});
  reference->run(AttentionForward{out,
                                  reference->allocate(DType::f64, {c.B, c.NH, T}),
                                  to_tensor(*reference, DType::f64, {c.B, T, 3 * C}, qkv),
                                  c.NH,
                                  c.scale,
                                  {}});
  return to_values(*reference, out);
}

// Rows [begin, begin + n) of every sequence of x (B,T,columns).
Values rows_of(const Values& x, std::int64_t B, std::int64_t T, std::int64_t columns, std::int64_t begin,
               std::int64_t n) {
  Values rows;
  for (std::int64_t b = 0; b < B; ++b) {
    const auto first = x.begin() + (b * T + begin) * columns;
    rows.insert(rows.end(), first, first + n * columns);
  }
  return rows;
}

TEST(CachedAttention, IsThatOfTheWholeSequence) {
  const std::vector<CachedCase> cases = {{1, 20, 3, 16, {1, 1, 1, 1}}, {1, 17, 1, 33, {13, 1, 1, 2}},
                                         {2, 70, 2, 8, {50, 1, 19}},   {1, 1, 1, 1, {1}},
                                         {3, 9, 4, 5, {1, 4, 1, 3}},   {1, 200, 2, 64, {150, 1, 49}},
                                         {1, 300, 1, 8, {290, 1, 9}},  {1, 20, 1, 150, {13, 1}}};
  on_every_backend([&](Backend& backend, DType dtype, double rounding) {
    for (const CachedCase& c : cases) {
      const std::int64_t C = c.NH * c.HS,
                         T = std::accumulate(c.parts.begin(), c.parts.end(), std::int64_t{0});
      const Values qkv = rounded_to(dtype, random_values(1, 0, c.B * T * 3 * C)),
                   whole = whole_attention(c, T, qkv);
      const Tensor cache = backend.allocate(dtype, {c.B, c.P, 2 * C});
      backend.fill(cache, std::numeric_limits<double>::quiet_NaN());  // rows not yet written must not be read
      RelativeError error;
      std::int64_t first = 0;
      for (const std::int64_t n : c.parts) {
        const Tensor out = backend.allocate(dtype, {c.B, n, C});
        const Values part = rows_of(qkv, c.B, T, 3 * C, first, n);
        // Also where kernels read the position in the backend's memory.
        const Tensor position =
            first % 2 == 0 ? Tensor() : to_tensor(backend, {1}, {static_cast<int>(first)});
        backend.run(CachedAttentionForward{out, cache, to_tensor(backend, dtype, {c.B, n, 3 * C}, part), c.NH,
                                           c.scale, first, position});
        error.add(to_values(backend, out), rows_of(whole, c.B, T, C, first, n));
        first += n;
      }
      EXPECT_LE(error.value(), error_limit(0, std::max(T, c.HS), dtype, rounding)) << T << " tokens of " << C;
    }
  });
}

// A token sees none of the later ones, however well their keys fit its query: a token alone gets its own
// value.
TEST(Attention, OfTheFirstTokenIsItsOwnValue) {
  on_every_backend([](Backend& backend, DType dtype, double rounding) {
    constexpr std::int64_t T = 3, HS = 4;
    const double limit = std::max(1e-5, rounding);
    Values qkv;
    for (std::int64_t t = 0; t < T; ++t) {
      for (const double x : {10.0, t == 0 ? 1.0 : 1000.0, 2.0 + static_cast<double>(t)}) {
        for (std::int64_t i = 0; i < HS; ++i) qkv.push_back(x);
      }
    }
    const Tensor out = backend.allocate(dtype, {1, T, HS}),
                 lse = backend.allocate(statistics_dtype(dtype), {1, 1, T});
    backend.run(AttentionForward{out, lse, to_tensor(backend, dtype, {1, T, 3 * HS}, qkv), 1, 0.25, {}});
    const Values y = to_values(backend, out);
    for (std::size_t i = 0; i < HS; ++i) EXPECT_NEAR(y[i], 2, limit) << i;
    for (std::size_t i = HS; i < 2 * HS; ++i) EXPECT_NEAR(y[i], 3, limit) << i;
    EXPECT_NEAR(to_values(backend, lse)[0], 4 * 10.0 / 4, 1e-4);  // scale·q·k
  });
}

TEST(CachedAttention, RefusesMoreThanTheCacheHolds) {
  const auto backend = make_naive_backend();
  const Tensor cache = backend->zeros(DType::f32, {1, 4, 16}), qkv = backend->zeros(DType::f32, {1, 2, 24}),
               out = backend->zeros(DType::f32, {1, 2, 8});
  EXPECT_NO_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 2, 1, 2, {}}));
  EXPECT_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 2, 1, 3, {}}), InternalError);
  EXPECT_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 3, 1, 0, {}}), InternalError);
}

Tensor bf16_tensor(Backend& backend, Shape shape, const Values& values) {
  const Tensor out = backend.allocate(DType::bf16, shape);
  backend.run(Cast{out, to_tensor(backend, DType::f32, shape, values)});
  return out;
}

TEST(Bf16, IsCastToTheNearestAndBack) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    for (const std::int64_t n : {40000, 40001}) {
      Values values = random_values(2, 0, n);
      values[7] = 1 + 0x1p-8;      // a tie: down to even
      values[8] = 1 + 3 * 0x1p-8;  // a tie: up to even
      const Tensor cast = bf16_tensor(backend, {n}, values);
      std::vector<Bf16> bits = to_host<Bf16>(backend, cast);
      Values got;
      for (const Bf16 element : bits) got.push_back(as_float(element));
      EXPECT_EQ(got, rounded_to(DType::bf16, values));
      EXPECT_EQ(got[7], 1);
      EXPECT_EQ(got[8], 1 + 0x1p-6);
      const Tensor wide = backend.allocate(DType::f32, cast.shape());
      backend.run(Cast{wide, cast});
      EXPECT_EQ(to_values(backend, wide), got);
    }
  });
}

TEST(Bf16, IsCastWithoutTouchingWhatFollows) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    const Tensor narrow = bf16_tensor(backend, {20}, Values(20, 5)),
                 wide = to_tensor(backend, DType::f32, {20}, Values(20, 3));
    backend.run(Cast{narrow.slice(0, {19}), wide.slice(0, {19})});
    std::vector<float> narrowed;
    for (const Bf16 element : to_host<Bf16>(backend, narrow)) narrowed.push_back(as_float(element));
    EXPECT_EQ(narrowed[18], 3);
    EXPECT_EQ(narrowed[19], 5);
    backend.run(Cast{wide.slice(0, {19}), bf16_tensor(backend, {19}, Values(19, 7))});
    EXPECT_EQ(to_values(backend, wide)[18], 7);
    EXPECT_EQ(to_values(backend, wide)[19], 3);
  });
}

// A matrix (O,I) in bf16 or quantised.
Tensor narrow_matrix(Backend& backend, DType dtype, std::int64_t O, std::int64_t I, const Values& values) {
  if (dtype == DType::bf16) return bf16_tensor(backend, {O, I}, values);
  const Tensor out = backend.allocate(DType::i8, {O, quantised_width(I)});
  backend.run(QuantiseRows{out, to_tensor(backend, DType::f32, {O, I}, values)});
  return out;
}

// What such a matrix keeps of rows of I values.
Values narrowed(DType dtype, std::int64_t I, const Values& values) {
  if (dtype == DType::bf16) return rounded_to(DType::bf16, values);
  Values kept;
  for (auto row = values.begin(); row != values.end(); row += I) {
    float largest = 0;
    std::for_each(row, row + I,
                  [&](double value) { largest = std::max(largest, std::abs(static_cast<float>(value))); });
    const float scale = largest / 127;  // in f32, as a tie in f64 may be none in f32
    std::transform(row, row + I, std::back_inserter(kept), [&](double value) {
      return static_cast<double>(scale) * std::nearbyint(static_cast<float>(value) / scale);
    });
  }
  return kept;
}

std::vector<DType> narrow_dtypes(const Backend& backend) {
  if (backend.reads_quantised_rows()) return {DType::bf16, DType::i8};
  return {DType::bf16};
}

struct LinearSizes {
  std::int64_t N, I, O;
};

// One input row and several, of one text or, if they are three, of as many; weights of one panel and of
// several, and sizes that are not multiples of a vector's length.
TEST(NarrowMatrices, OfALinearLayerAreTheRoundedWeights) {
  on_every_backend([](Backend& backend, DType dtype, double rounding) {
    if (dtype != DType::f32) return;
    std::vector<LinearSizes> sizes = {{1, 192, 576}, {1, 33, 131}, {1, 1, 1},   {1, 300, 7},
                                      {17, 48, 300}, {3, 20, 34},  {2, 17, 513}};
    // A panel of a processor has 2²⁰ elements.
    if (backend.reads_quantised_rows()) sizes.push_back({2, 1100, 960});
    for (const DType narrow : narrow_dtypes(backend)) {
      for (const auto& [N, I, O] : sizes) {
        const Values x = random_values(3, 0, N * I), w = random_values(3, 1, O * I),
                     bias = random_values(3, 2, O);
        const auto linear = [&](Backend& be, DType type, const Tensor& weight) {
          const std::int64_t texts = N == 3 ? N : 1;
          const Tensor out = be.allocate(type, {texts, N / texts, O}), pre = be.allocate(type, out.shape());
          const Tensor row = to_tensor(be, type, {texts, N / texts, I}, x),
                       offset = to_tensor(be, type, {O}, bias);
          be.run(LinearActivationForward{out, pre, row, weight, offset, Activation::relu});
          Values all = to_values(be, out);
          std::ranges::copy(to_values(be, pre), std::back_inserter(all));
          be.run(LinearForward{out, row, weight, offset});
          std::ranges::copy(to_values(be, out), std::back_inserter(all));
          return all;
        };
        const auto reference = make_naive_backend();
        const Values expected =
            linear(*reference, DType::f64, to_tensor(*reference, DType::f64, {O, I}, narrowed(narrow, I, w)));
        EXPECT_LE(relative_error(linear(backend, dtype, narrow_matrix(backend, narrow, O, I, w)), expected),
                  error_limit(0, I, dtype, rounding))
            << narrow << ' ' << N << " x " << I << " x " << O;
      }
    }
  });
}

// The next token of a text has one row. Rows of a weight that are shorter and longer than what a warp reads
// at once, that several warps share, and that are not aligned; more rows than a block has, and fewer. How a
// row is divided does not depend on the activation: few sizes see them all.
TEST(OneRow, OfALinearLayerIsItsFormula) {
  struct Size {
    std::int64_t I, O;
    std::vector<Activation> activations = {Activation::gelu_new};
  };
  const std::vector<Activation> all = {Activation::none, Activation::gelu_new, Activation::relu};
  const std::vector<Size> sizes = {{1, 1},         {8, 9},    {64, 24, all}, {257, 5},      {768, 17},
                                   {1030, 3, all}, {1600, 8}, {3072, 20},    {9000, 2, all}};
  on_every_backend([&](Backend& backend, DType dtype, double rounding) {
    for (const auto& [I, O, activations] : sizes) {
      for (const Activation activation : activations) {
        const Values x = rounded_to(dtype, random_values(5, 0, I)),
                     w = rounded_to(dtype, random_values(5, 1, O * I)),
                     bias = rounded_to(dtype, random_values(5, 2, O));
        const auto linear = [&](Backend& be, DType type) {
          const Tensor out = be.allocate(type, {1, 1, O}), pre = be.allocate(type, {1, 1, O}),
                       row = to_tensor(be, type, {1, 1, I}, x), weight = to_tensor(be, type, {O, I}, w),
                       offset = O == 8 ? Tensor() : to_tensor(be, type, {O}, bias);
          if (activation == Activation::none) {
            be.run(LinearForward{out, row, weight, offset});
            be.copy(pre, out);
          } else {
            be.run(LinearActivationForward{out, pre, row, weight, offset, activation});
          }
          return std::pair(to_values(be, out), to_values(be, pre));
        };
        const auto [out, pre] = linear(backend, dtype);
        const auto reference = make_naive_backend();
        const auto [right_out, right_pre] = linear(*reference, DType::f64);
        const double limit = error_limit(0, I, dtype, rounding);
        EXPECT_LE(relative_error(pre, right_pre), limit) << dtype << ' ' << O << " x " << I;
        EXPECT_LE(relative_error(out, right_out), 2 * limit) << dtype << ' ' << O << " x " << I;
      }
    }
  });
}

// The reference computes its parts one after the other, in f64.
TEST(OneRow, OfALinearLayerAfterALayernormIsItsFormula) {
  on_every_backend([](Backend& backend, DType dtype, double rounding) {
    for (const std::int64_t C : {1, 8, 33, 96, 768, 2056}) {
      for (const bool with_residual : {false, true}) {
        const std::int64_t O = C == 8 ? 5 : 19;  // one block of rows, and several
        const auto values = [&](std::uint32_t i, std::int64_t n) {
          return rounded_to(dtype, random_values(6, i, n));
        };
        const Values x = values(0, C), residual = values(1, C), w = values(2, O * C), bias = values(3, O);
        const Values gain = random_values(6, 4, C), shift = random_values(6, 5, C);
        const auto run = [&](Backend& be, DType type) {
          const DType statistics = statistics_dtype(type);
          const Tensor out = be.allocate(type, {1, 1, O}), sum = be.allocate(type, {1, 1, C});
          be.run(NormLinearForward{
              out, with_residual ? sum : Tensor(), to_tensor(be, type, {1, 1, C}, x),
              with_residual ? to_tensor(be, type, {1, 1, C}, residual) : Tensor(),
              to_tensor(be, statistics, {C}, gain), to_tensor(be, statistics, {C}, shift), 1e-5,
              to_tensor(be, type, {O, C}, w), to_tensor(be, type, {O}, bias), Activation::gelu_new});
          return std::pair(to_values(be, out), with_residual ? to_values(be, sum) : Values());
        };
        const auto reference = make_naive_backend();
        const auto [out, sum] = run(backend, dtype);
        const auto [right_out, right_sum] = run(*reference, DType::f64);
        EXPECT_LE(relative_error(out, right_out), 4 * error_limit(0, C, dtype, rounding))
            << dtype << ' ' << C;
        if (with_residual) {
          EXPECT_LE(relative_error(sum, right_sum), unit_roundoff(dtype)) << dtype << ' ' << C;
        }
      }
    }
  });
}

// Among equal logits, of which there are many here, and two zeros, the first ones come first. A GPU's blocks
// have 2,048 logits each, and the 64 largest of five of them are more than the 256 threads of the last one.
TEST(LargestLogits, AreThoseOfASortedRow) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    for (const std::int64_t n : {1, 5, 100, 2048, 2049, 9000}) {
      std::vector<float> logits;
      for (const double value : random_values(7, 0, n))
        logits.push_back(static_cast<float>(std::floor(4 * value)));
      for (std::size_t i = 0; i < logits.size(); i += 7) logits[i] = i % 2 == 0 ? 0.0F : -0.0F;
      std::vector<std::int32_t> sorted(logits.size());
      std::iota(sorted.begin(), sorted.end(), 0);
      std::ranges::stable_sort(sorted, std::greater(), [&](std::int32_t i) { return logits[i]; });
      const Tensor row = to_device<float>(backend, {n}, logits);
      for (const std::int64_t k : {1, 2, 33, 64}) {
        if (k > n) continue;
        const Tensor values = backend.allocate(DType::f32, {k}), ids = backend.allocate(DType::i32, {k});
        backend.run(LargestLogits{values, ids, row});
        const auto got = to_host<std::int32_t>(backend, ids);
        EXPECT_TRUE(std::ranges::equal(got, sorted | std::views::take(k))) << k << " of " << n;
        const auto largest = to_host<float>(backend, values);
        for (std::size_t i = 0; i < largest.size(); ++i) EXPECT_EQ(largest[i], logits[got[i]]) << i;
      }
    }
  });
}

TEST(LargestLogits, SayThatOneIsNotFinite) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    const Tensor values = backend.allocate(DType::f32, {2}), ids = backend.allocate(DType::i32, {2});
    for (const double broken :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      for (const std::size_t at : {0, 2999}) {
        Values logits(3000, 1.0);
        logits[at] = broken;
        backend.run(LargestLogits{values, ids, to_tensor(backend, dtype, {3000}, logits)});
        EXPECT_TRUE(std::isnan(to_values(backend, values)[0])) << broken << " at " << at;
      }
    }
  });
}

// The tokens that the sampler draws from the same logits. A GPU's blocks have 2,048 logits each. What is
// behind the vocabulary is not read.
TEST(DrawTokens, AreThoseOfTheSampler) {
  constexpr std::int64_t kRows = 3;
  on_every_backend([&](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    for (const std::int64_t n : {1, 5, 2048, 2049, 9000}) {
      const std::int64_t columns = n + n % 5;
      const Values values = random_values(8, 0, kRows * columns, 3);
      std::vector<float> logits(values.begin(), values.end());
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = n; i < columns; ++i)
          logits[static_cast<std::size_t>(row * columns + i)] = std::numeric_limits<float>::quiet_NaN();
      }
      const Tensor all = to_device<float>(backend, {kRows, 1, columns}, logits),
                   ids = backend.allocate(DType::i32, {kRows});
      for (const double temperature : {0.05, 0.7, 30.0}) {
        for (std::uint64_t element = 0; element < 6; ++element) {
          backend.run(DrawTokens{ids, all, n, temperature, {5, 2, 7}, element});
          const auto got = to_host<std::int32_t>(backend, ids);
          for (std::uint32_t row = 0; row < kRows; ++row) {
            const auto own = std::span(logits).subspan(static_cast<std::size_t>(row * columns),
                                                       static_cast<std::size_t>(n));
            EXPECT_EQ(got[row], draw(candidates(own, {}, {.temperature = temperature}),
                                     random_uniform({5, 2, 7 + row}, element)))
                << n << " logits, row " << row;
          }
        }
      }
    }
  });
}

// Of these logits only two tokens, the last of a block and the first of the next, have a probability above 0:
// 1/4 and 3/4.
TEST(DrawTokens, HaveTheirProbabilities) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    constexpr int kDraws = 100;
    std::vector<float> logits(5000, -1e6F);
    logits[2047] = 3;
    logits[2048] = 3 + std::log(3.0F);
    std::vector<float> rows;
    for (int i = 0; i < kDraws; ++i) rows.insert(rows.end(), logits.begin(), logits.end());
    const Tensor ids = backend.allocate(DType::i32, {kDraws});
    backend.run(DrawTokens{ids, to_device<float>(backend, {kDraws, 5000}, rows), 5000, 1, {}, 0});
    const auto drawn = to_host<std::int32_t>(backend, ids);
    const auto first = std::ranges::count(drawn, 2047), second = std::ranges::count(drawn, 2048);
    EXPECT_EQ(first + second, kDraws);
    EXPECT_NEAR(static_cast<double>(first), 25, 4 * std::sqrt(100 * 0.25 * 0.75));
  });
}

TEST(DrawTokens, SayThatALogitIsNotFinite) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Tensor ids = backend.allocate(DType::i32, {2});
    for (const float broken : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
      for (const std::size_t at : {0, 2999}) {
        std::vector<float> logits(6000, 1.0F);
        logits[at] = broken;
        backend.run(DrawTokens{ids, to_device<float>(backend, {2, 3000}, logits), 3000, 1, {}, 0});
        const auto drawn = to_host<std::int32_t>(backend, ids);
        EXPECT_EQ(drawn[0], -1) << broken << " at " << at;
        EXPECT_GE(drawn[1], 0);
      }
    }
  });
}

TEST(NarrowMatrices, OfAnEmbeddingAreTheRoundedWeights) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    const std::int64_t C = 35;
    const Values wte = random_values(4, 0, 11 * C), wpe = random_values(4, 1, 5 * C);
    const Tensor ids = to_tensor(backend, {1, 3}, std::vector<std::int32_t>{7, 0, 10});
    const auto embedding = [&](const Tensor& rows) {
      const Tensor out = backend.allocate(dtype, {1, 3, C});
      backend.run(EmbeddingForward{out, ids, rows, to_tensor(backend, dtype, {5, C}, wpe), {}});
      return to_values(backend, out);
    };
    for (const DType narrow : narrow_dtypes(backend)) {
      const Values got = embedding(narrow_matrix(backend, narrow, 11, C, wte)),
                   expected = embedding(to_tensor(backend, dtype, {11, C}, narrowed(narrow, C, wte)));
      EXPECT_LE(relative_error(got, expected), narrow == DType::bf16 ? 0 : 1e-7) << narrow;
    }
  });
}

}  // namespace
}  // namespace stagegpt::test
