// The ladders' kernels of products in bf16 and of attention, on the emulator in every order of threads, at
// sizes that fill their tiles and sizes that do not.
#include <algorithm>
#include <cmath>

#include "stage2_cuda/kernels/attention_ladder.cuh"
#include "stage2_cuda/kernels/matmul_mma.cuh"
#include "tests/emulation/device_values.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// ---- Products in bf16 ----

class MatmulOnTensorCores : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, MatmulOnTensorCores, kOrders, order_name);

struct ProductSize {
  std::int64_t m, n, k;
};

// Whole numbers of which every product and every sum is exact in bf16, so that nothing may be rounded.
Values whole_numbers(std::int64_t count, std::int64_t step) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * step % 7 % 3) - 1);
  return values;
}

// The rows behind c, which no kernel may write.
constexpr std::int64_t kRowsBehind = 2;

template <class Sizes>
void expect_exact_product(const ProductSize& size) {
  const auto [m, n, k] = size;
  const Values a = whole_numbers(m * k, 5), b = whole_numbers(k * n, 3), bias = whole_numbers(n, 2);
  Values want(static_cast<std::size_t>((m + kRowsBehind) * n), 1024);
  const DeviceArray<Bf16> c(narrowed<Bf16>(want)), left(narrowed<Bf16>(a)), right(narrowed<Bf16>(b)),
      offset(narrowed<Bf16>(bias));
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = bias[static_cast<std::size_t>(column)];
      for (std::int64_t i = 0; i < k; ++i)
        sum += a[static_cast<std::size_t>(row * k + i)] * b[static_cast<std::size_t>(i * n + column)];
      ASSERT_LE(std::abs(sum), 256) << "not exact in bf16";
      want[static_cast<std::size_t>(row * n + column)] = sum;
    }
  }
  matmul_mma<Sizes>(nullptr, {.c = c.data(),
                              .ldc = n,
                              .a = {left.data(), k},
                              .b = {right.data(), n},
                              .m = m,
                              .n = n,
                              .k = k,
                              .bias = offset.data()});
  EXPECT_EQ(widened(c.values()), want) << m << 'x' << k << " and " << k << 'x' << n;
}

TEST_P(MatmulOnTensorCores, is_exact_for_small_whole_numbers) {
  for (const ProductSize size :
       {ProductSize{1, 8, 8}, {17, 16, 24}, {64, 64, 32}, {65, 72, 40}, {127, 136, 104}, {129, 128, 64}}) {
    expect_exact_product<MmaTensorCores>(size);
    expect_exact_product<MmaLargerTiles>(size);
    expect_exact_product<MmaTwoBuffers>(size);
  }
}

// Sums of 512 products that would stay at 256 if each were rounded to bf16.
TEST_P(MatmulOnTensorCores, adds_in_f32) {
  constexpr std::int64_t kTerms = 512;
  const DeviceArray<Bf16> ones(narrowed<Bf16>(Values(8 * kTerms, 1))), bias(narrowed<Bf16>(Values(8, 0))),
      c(8 * 8);
  matmul_mma<MmaTwoBuffers>(nullptr, {.c = c.data(),
                                      .ldc = 8,
                                      .a = {ones.data(), kTerms},
                                      .b = {ones.data(), 8},
                                      .m = 8,
                                      .n = 8,
                                      .k = kTerms,
                                      .bias = bias.data()});
  EXPECT_EQ(widened(c.values()), Values(8 * 8, kTerms));
}

TEST(MatmulOnTensorCoresRefuses, sizes_that_it_cannot_copy) {
  const DeviceArray<Bf16> memory(256);
  const auto multiply = [&](std::int64_t n, std::int64_t k, std::int64_t ld, bool transposed) {
    matmul_mma<MmaTensorCores>(nullptr, {.c = memory.data(),
                                         .ldc = n,
                                         .a = {memory.data(), ld, transposed},
                                         .b = {memory.data(), n},
                                         .m = 4,
                                         .n = n,
                                         .k = k,
                                         .bias = memory.data()});
  };
  EXPECT_NO_THROW(multiply(8, 8, 8, false));
  EXPECT_THROW(multiply(12, 8, 8, false), InternalError);
  EXPECT_THROW(multiply(8, 12, 12, false), InternalError);
  EXPECT_THROW(multiply(8, 8, 16, false), InternalError) << "padded rows";
  EXPECT_THROW(multiply(8, 8, 8, true), InternalError);
}

// ---- Attention ----

class AttentionVersions : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, AttentionVersions, kOrders, order_name);

struct Attended {
  Values out, lse;
};

Attended attention_in_f64(const Values& qkv, const AttentionSize& s) {
  const std::int64_t C = s.channels();
  Attended result;
  result.out.resize(static_cast<std::size_t>(s.B * s.T * C));
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t part, std::int64_t h, std::int64_t i) {
    return qkv[static_cast<std::size_t>((b * s.T + t) * 3 * C + part * C + h * s.HS + i)];
  };
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.NH; ++h) {
      for (std::int64_t t = 0; t < s.T; ++t) {
        Values weights;
        double sum = 0;
        for (std::int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (std::int64_t i = 0; i < s.HS; ++i) score += at(b, t, 0, h, i) * at(b, u, 1, h, i);
          weights.push_back(s.scale * score);
        }
        const double max = *std::max_element(weights.begin(), weights.end());
        for (double& weight : weights) sum += weight = std::exp(weight - max);
        for (std::int64_t i = 0; i < s.HS; ++i) {
          double& out = result.out[static_cast<std::size_t>((b * s.T + t) * C + h * s.HS + i)];
          for (std::int64_t u = 0; u <= t; ++u)
            out += weights[static_cast<std::size_t>(u)] / sum * at(b, u, 2, h, i);
        }
        result.lse.push_back(max + std::log(sum));
      }
    }
  }
  return result;
}

template <class Real>
using AttentionVersion = void (*)(StreamHandle, const AttentionCall<Real>&);

// `roundings`: of the output, or of what it is made of, to bf16.
template <class Real>
void expect_attention(const char* name, AttentionVersion<Real> run, const AttentionSize& s,
                      double roundings) {
  const std::int64_t C = s.channels();
  const Values qkv = rounded_to(kDTypeOf<Real>, random_values(7, 1, s.B * s.T * 3 * C));
  const Attended want = attention_in_f64(qkv, s);
  const DeviceArray<Real> in(narrowed<Real>(qkv)), out(want.out.size());
  const DeviceArray<float> lse(want.lse.size()), scores(want.lse.size() * static_cast<std::size_t>(s.T));
  run(nullptr, {out.data(), lse.data(), scores.data(), in.data(), s});
  const double exact = error_limit(0, std::max(s.T, s.HS), DType::f32);
  EXPECT_LE(relative_error(widened(out.values()), want.out),
            exact + (kDTypeOf<Real> == DType::bf16 ? roundings * unit_roundoff(DType::bf16) : 0))
      << name << ", T = " << s.T << ", HS = " << s.HS;
  EXPECT_LE(relative_error(widened(lse.values()), want.lse), exact)
      << name << ", T = " << s.T << ", HS = " << s.HS;
}

template <class Real>
void expect_all_versions() {
  for (const AttentionSize& s : {AttentionSize{2, 1, 1, 64, 0.125F},
                                 {1, 33, 2, 20, 0.25F},
                                 {2, 64, 1, 7, 0.5F},
                                 {1, 131, 1, 64, 0.2F}}) {
    expect_attention<Real>("v1", attention_v1<Real>, s, 1);
    expect_attention<Real>("v2", attention_v2<Real>, s, 1);
    expect_attention<Real>("v3", attention_v3<Real>, s, 1);
    expect_attention<Real>("flash", attention_flash<Real>, s, 2);
  }
}

TEST_P(AttentionVersions, are_right_in_f32) { expect_all_versions<float>(); }
TEST_P(AttentionVersions, are_right_in_bf16) { expect_all_versions<Bf16>(); }

// Scores beyond 88, the logarithm of the largest f32: without the maximum, their exponentials are infinite.
TEST_P(AttentionVersions, take_large_scores) {
  const AttentionSize s{1, 40, 1, 16, 10};
  const Values qkv = random_values(8, 2, s.T * 3 * s.HS);
  const Attended want = attention_in_f64(qkv, s);
  ASSERT_GT(*std::max_element(want.lse.begin(), want.lse.end()), 88);
  const DeviceArray<float> in(narrowed<float>(qkv)), out(want.out.size()), lse(want.lse.size()),
      scores(want.lse.size() * want.lse.size());
  for (const AttentionVersion<float> run :
       {attention_v1<float>, attention_v2<float>, attention_v3<float>, attention_flash<float>}) {
    run(nullptr, {out.data(), lse.data(), scores.data(), in.data(), s});
    EXPECT_LE(relative_error(widened(out.values()), want.out), plain_error_limit(DType::f32));
    EXPECT_LE(relative_error(widened(lse.values()), want.lse), plain_error_limit(DType::f32));
  }
}

TEST(AttentionVersionsRefuse, heads_that_have_no_room_in_registers) {
  const DeviceArray<float> memory(3 * 65);
  const AttentionCall<float> call{
      memory.data(), memory.data(), memory.data(), memory.data(), {1, 1, 1, 65, 1}};
  EXPECT_THROW(attention_v3(nullptr, call), InternalError);
  EXPECT_THROW(attention_flash(nullptr, call), InternalError);
}

}  // namespace
}  // namespace stagegpt::test
