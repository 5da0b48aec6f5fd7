// Ops of inference on every backend: attention with a KV cache, and matrices in bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/embedding.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/elementwise.h"
#include "common/tensor/half_floats.h"
#include "common/tensor/quantised_rows.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

// Calls `test` for every backend and dtype. `rounding` is BackendUnderTest::rounding.
void on_every_backend(const std::function<void(Backend&, DType, double rounding)>& test) {
  for (const BackendUnderTest& backend : backends_under_test()) {
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
  on_every_backend([&](Backend& backend, DType dtype, double /*rounding*/) {
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
        backend.run(CachedAttentionForward{out, cache, to_tensor(backend, dtype, {c.B, n, 3 * C}, part), c.NH,
                                           c.scale, first});
        error.add(to_values(backend, out), rows_of(whole, c.B, T, C, first, n));
        first += n;
      }
      EXPECT_LE(error.value(), error_limit(0, std::max(T, c.HS), dtype)) << T << " tokens of " << C;
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
  EXPECT_NO_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 2, 1, 2}));
  EXPECT_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 2, 1, 3}), InternalError);
  EXPECT_THROW(backend->run(CachedAttentionForward{out, cache, qkv, 3, 1, 0}), InternalError);
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

// One input row and several, weights of one panel and of several, and sizes that are not multiples of a
// vector's length.
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
          const Tensor out = be.allocate(type, {N, O});
          be.run(LinearForward{out, to_tensor(be, type, {N, I}, x), weight, to_tensor(be, type, {O}, bias)});
          return to_values(be, out);
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

TEST(NarrowMatrices, OfAnEmbeddingAreTheRoundedWeights) {
  on_every_backend([](Backend& backend, DType dtype, double /*rounding*/) {
    if (dtype != DType::f32) return;
    const std::int64_t C = 35;
    const Values wte = random_values(4, 0, 11 * C), wpe = random_values(4, 1, 5 * C);
    const Tensor ids = to_tensor(backend, {1, 3}, std::vector<std::int32_t>{7, 0, 10});
    const auto embedding = [&](const Tensor& rows) {
      const Tensor out = backend.allocate(dtype, {1, 3, C});
      backend.run(EmbeddingForward{out, ids, rows, to_tensor(backend, dtype, {5, C}, wpe)});
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
