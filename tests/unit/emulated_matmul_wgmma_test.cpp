// The products in bf16 for compute capability 9.0, on the emulator in every order of threads, at sizes that
// fill their tiles and sizes that do not. Factors are small whole numbers, of which every product and every
// sum is exact: a wrong element is a wrong index.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/wgmma.h"
#include "tests/emulation/device_values.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// Random numbers of -1, 0 and 1.
Values signs(std::int64_t count, unsigned stream) {
  Values values = random_values(1, stream, count);
  for (double& value : values) value = value < -0.5 ? -1 : value > 0.5 ? 1 : 0;
  return values;
}

struct ProductSize {
  std::int64_t m, n, k;
};

// The rows behind c, and the columns beside it, which no kernel may write.
constexpr std::int64_t kRowsBehind = 2, kColumnsBeside = 8;
constexpr double kBefore = 64;  // elements of c before

// A product of signs on the device, and what it is.
template <class Result>
struct ExactProduct {
  ExactProduct(const ProductSize& size, bool a_transposed, bool b_transposed, std::int64_t beside)
      : m(size.m),
        n(size.n),
        k(size.k),
        ldc(n + beside),
        product(static_cast<std::size_t>(m * n)),
        offset(signs(n, 2)),
        a(narrowed<Bf16>(signs(m * k, 0))),
        b(narrowed<Bf16>(signs(k * n, 1))),
        bias(narrowed<Result>(offset)),
        c(narrowed<Result>(Values(static_cast<std::size_t>((m + kRowsBehind) * ldc), kBefore))) {
    const Values left = signs(m * k, 0), right = signs(k * n, 1);
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        double& sum = product[static_cast<std::size_t>(row * n + column)];
        for (std::int64_t i = 0; i < k; ++i) {
          sum += left[static_cast<std::size_t>(a_transposed ? i * m + row : row * k + i)] *
                 right[static_cast<std::size_t>(b_transposed ? column * k + i : i * n + column)];
        }
        EXPECT_LE(std::abs(sum), 128) << "with the bias and what is there before, not exact in bf16";
      }
    }
    argument.c = c.data(), argument.ldc = ldc;
    argument.a = {a.data(), a_transposed ? m : k, a_transposed};
    argument.b = {b.data(), b_transposed ? k : n, b_transposed};
    argument.m = m, argument.n = n, argument.k = k;
  }

  // c, with finish(product, column) in place of the product's elements.
  template <class Finish>
  void expect(const char* what, const Finish& finish) const {
    const Values got = widened(c.values());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()); ++i) {
      const std::int64_t row = i / ldc, column = i % ldc;
      const bool inside = row < m && column < n;
      const double want = inside ? finish(product[static_cast<std::size_t>(row * n + column)],
                                          static_cast<std::size_t>(column))
                                 : kBefore;
      ASSERT_EQ(got[static_cast<std::size_t>(i)], want)
          << what << " (" << m << ',' << k << ") · (" << k << ',' << n << "): element (" << row << ','
          << column << ')' << (inside ? "" : ", which lies outside");
    }
  }

  std::int64_t m, n, k, ldc;
  Values product, offset;
  DeviceArray<Bf16> a, b;
  DeviceArray<Result> bias, c;
  ProductOf<Bf16, Result> argument;
};

// Counts what the kernels leave to the library.
class NoLibrary : public Gemm {
 public:
  void run(const Product&, StreamHandle) override { ADD_FAILURE() << "f32"; }
  void run(const ProductOf<Bf16, Bf16>&, StreamHandle) override { ++calls; }
  void run(const ProductOf<Bf16, float>&, StreamHandle) override { ++calls; }
  using Gemm::has_epilogue;

  int calls = 0;
};

class MatmulWgmma : public InEveryOrderOn90 {
 protected:
  void SetUp() override {
    InEveryOrderOn90::SetUp();
    open_device(0);
  }
  const EmulatedDevice two_multiprocessors_{90, 2};
  const std::unique_ptr<Gemm> gemm_ = make_wgmma_gemm(std::make_unique<NoLibrary>());
};
INSTANTIATE_TEST_SUITE_P(Orders, MatmulWgmma, kOrders, order_name);

TEST_P(MatmulWgmma, versions_of_the_ladder_are_exact) {
  for (const auto& [name, run] : {std::pair("v7", &matmul_v7), {"v8", &matmul_v8}, {"v9", &matmul_v9}}) {
    for (const ProductSize size : {ProductSize{1, 8, 8}, {65, 72, 40}, {129, 264, 136}, {130, 128, 520}}) {
      ExactProduct<Bf16> p(size, false, false, 0);
      p.argument.bias = p.bias.data();
      run(nullptr, p.argument);
      p.expect(name, [&](double product, std::size_t column) { return product + p.offset[column]; });
    }
  }
}

// Six tiles are three for each block, in a ring that goes round. 17 rows of tiles are more than a group of
// neighbours.
TEST_P(MatmulWgmma, forwards_are_exact) {
  for (const ProductSize size : {ProductSize{3, 12, 8}, {270, 300, 136}, {17, 8, 584}, {2060, 260, 8}}) {
    ExactProduct<Bf16> p(size, false, true, kColumnsBeside);
    p.argument.bias = p.bias.data();
    gemm_->run(p.argument, nullptr);
    p.expect("forward", [&](double product, std::size_t column) { return product + p.offset[column]; });
  }
}

TEST_P(MatmulWgmma, gradients_of_activations_are_exact) {
  for (const bool accumulate : {false, true}) {
    ExactProduct<Bf16> p({129, 264, 200}, false, false, kColumnsBeside);
    p.argument.accumulate = accumulate;
    gemm_->run(p.argument, nullptr);
    p.expect("dx", [&](double product, std::size_t) { return product + (accumulate ? kBefore : 0); });
  }
}

TEST_P(MatmulWgmma, gradients_of_weights_are_exact) {
  for (const bool accumulate : {false, true}) {
    for (const ProductSize size : {ProductSize{72, 8, 5}, {136, 264, 130}}) {
      ExactProduct<float> p(size, true, false, kColumnsBeside);
      p.argument.accumulate = accumulate;
      gemm_->run(p.argument, nullptr);
      p.expect("dw", [&](double product, std::size_t) { return product + (accumulate ? kBefore : 0); });
    }
  }
}

// 33 tiles in k: parts of 17 and 16, and a kernel that adds them.
TEST_P(MatmulWgmma, long_sums_are_divided) {
  for (const bool accumulate : {false, true}) {
    ExactProduct<float> p({16, 264, 64 * 33 - 3}, true, false, kColumnsBeside);
    p.argument.accumulate = accumulate;
    const std::int64_t before = device_counts.work().kernels;
    gemm_->run(p.argument, nullptr);
    EXPECT_EQ(device_counts.work().kernels - before, 2);
    p.expect("dw", [&](double product, std::size_t) { return product + (accumulate ? kBefore : 0); });
  }
}

// gelu_new(x) = x·σ(2u), u = √(2/π)·(x + 0.044715·x³) (Hendrycks and Gimpel, 2016), and its derivative.
double gelu_formula(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  constexpr double kStep = 1e-5;
  return (gelu_formula(x + kStep) - gelu_formula(x - kStep)) / (2 * kStep);
}

// Each element is rounded once, after sums and functions in f32.
void expect_rounded(double got, double want) {
  EXPECT_NEAR(got, want,
              (unit_roundoff(DType::bf16) + plain_error_limit(DType::f32)) * std::abs(want) + 1e-7);
}

TEST_P(MatmulWgmma, has_the_epilogues_of_gelu) {
  ExactProduct<Bf16> forward({66, 40, 16}, false, true, kColumnsBeside);
  const DeviceArray<Bf16> pre(forward.c.values());
  forward.argument.bias = forward.bias.data();
  forward.argument.epilogue = Epilogue::gelu;
  forward.argument.pre = pre.data();
  ASSERT_TRUE(gemm_->has_epilogue(forward.argument));
  gemm_->run(forward.argument, nullptr);
  const Values result = widened(forward.c.values()), saved = widened(pre.values());
  ExactProduct<Bf16> backward({66, 40, 16}, false, false, kColumnsBeside);
  backward.argument.epilogue = Epilogue::gelu_backward;
  backward.argument.pre = pre.data();
  ASSERT_TRUE(gemm_->has_epilogue(backward.argument));
  gemm_->run(backward.argument, nullptr);
  const Values gradient = widened(backward.c.values());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto ldc = static_cast<std::size_t>(forward.ldc), n = static_cast<std::size_t>(forward.n);
    const std::size_t row = i / ldc, column = i % ldc, at = row * n + column;
    if (column >= n || at >= forward.product.size()) {
      EXPECT_EQ((std::array{result[i], saved[i], gradient[i]}), (std::array{kBefore, kBefore, kBefore})) << i;
      continue;
    }
    const double x = forward.product[at] + forward.offset[column];
    EXPECT_EQ(saved[i], x);
    expect_rounded(result[i], gelu_formula(x));
    expect_rounded(gradient[i], backward.product[at] * gelu_slope(x));
  }
}

// Factors that the copy engine cannot read, results in no fours, other forms than those of a training step.
TEST(MatmulWgmmaLeaves, other_products_to_the_library) {
  const EmulatedDevice device(90);
  open_device(0);
  auto owned = std::make_unique<NoLibrary>();
  NoLibrary& library = *owned;
  const std::unique_ptr<Gemm> gemm = make_wgmma_gemm(std::move(owned));
  const auto expect_left = [&](const auto& product) {
    library.calls = 0;
    gemm->run(product, nullptr);
    EXPECT_EQ(library.calls, 1);
  };
  expect_left(ExactProduct<Bf16>({4, 8, 12}, false, false, 0).argument);
  expect_left(ExactProduct<Bf16>({4, 12, 8}, false, false, 0).argument);
  expect_left(ExactProduct<Bf16>({4, 10, 8}, false, true, 0).argument);
  expect_left(ExactProduct<Bf16>({8, 8, 8}, false, true, 2).argument);
  const auto expect_left_if = [&](const auto& change) {
    ExactProduct<Bf16> p({8, 8, 8}, false, true, 8);
    change(p.argument);
    expect_left(p.argument);
  };
  expect_left_if([](auto& p) { p.c += 4; });
  expect_left_if([](auto& p) { p.bias = p.c + 4; });
  expect_left_if([](auto& p) { p.a.data += 4; });
  expect_left_if([](auto& p) { p.a.ld = 16; });
  expect_left_if([](auto& p) { p.batch = 2; });
  expect_left_if([](auto& p) { p.scale = 0.5F; });
  expect_left_if([](auto& p) { p.epilogue = Epilogue::row_sums, p.row_sums = p.c + 8; });
  expect_left(ExactProduct<Bf16>({8, 8, 8}, true, false, 0).argument);
  expect_left(ExactProduct<float>({4, 8, 8}, true, false, 0).argument);
  ExactProduct<float> p({8, 8, 8}, true, false, 0);
  p.argument.epilogue = Epilogue::row_sums;
  p.argument.row_sums = p.bias.data();
  EXPECT_FALSE(gemm->has_epilogue(p.argument));
  expect_left(p.argument);
}

// On 1, 2 and 3 multiprocessors, 9 tiles in 2 parts.
TEST(EmulatedMatmulWgmma, HasTheSameBitsOnAnyNumberOfMultiprocessors) {
  const auto bits_on = [](int multiprocessors) {
    const EmulatedDevice device(90, multiprocessors);
    open_device(0);
    const auto random = [](unsigned stream, std::int64_t count) {
      return DeviceArray<Bf16>(narrowed<Bf16>(random_values(1, stream, count)));
    };
    constexpr std::int64_t kM = 264, kN = 520, kK = 2104;
    const DeviceArray<Bf16> a = random(0, kK * kM), b = random(1, kK * kN);
    const DeviceArray<float> c(std::vector<float>(kM * kN, NAN));
    make_wgmma_gemm(std::make_unique<NoLibrary>())
        ->run(ProductOf<Bf16, float>{.c = c.data(),
                                     .ldc = kN,
                                     .a = {a.data(), kM, true},
                                     .b = {b.data(), kN},
                                     .m = kM,
                                     .n = kN,
                                     .k = kK},
              nullptr);
    return c.values();
  };
  const std::vector<float> one = bits_on(1);
  EXPECT_TRUE(std::ranges::none_of(one, [](float sum) { return std::isnan(sum); }));
  for (const int multiprocessors : {2, 3}) EXPECT_TRUE(bits_on(multiprocessors) == one) << multiprocessors;
}

}  // namespace
}  // namespace stagegpt::test
