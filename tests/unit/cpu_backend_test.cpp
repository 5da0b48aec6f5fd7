// Guarantees of the CPU backend other than the numbers of its ops.
#include "stage0_serial/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "common/app/stage.h"
#include "common/autograd/ops/attention.h"
#include "common/autograd/ops/linear.h"
#include "common/backend/ops/elementwise.h"
#include "common/backend/ops/sums.h"
#include "common/comm/self_communicator.h"
#include "common/model/gpt2.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/vector_math.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

TEST(CpuBackend, the_squared_norm_has_the_same_bits_with_any_number_of_threads) {
  for (const std::int64_t n : {1, 1000, 16384, 16385, 100001}) {
    std::vector<double> norms;
    for (const int threads : {1, 2, 3}) {
      const std::unique_ptr<Backend> backend = make_cpu_backend(threads);
      const Tensor norm = backend->allocate(DType::f64, {1});
      backend->run(SquaredNorm{norm, to_tensor(*backend, DType::f32, {n}, random_values(1, 0, n))});
      norms.push_back(to_value(*backend, norm));
    }
    EXPECT_EQ(norms[0], norms[1]) << n;
    EXPECT_EQ(norms[0], norms[2]) << n;
  }
}

// Of a small model with dropout.
Values gradients(Backend& backend, DType activations) {
  const Gpt2Config config = {
      .vocab_size = 101, .block_size = 70, .n_layer = 2, .n_head = 3, .n_embd = 96, .dropout = 0.1};
  constexpr std::int64_t kB = 3, kT = 70;
  const auto ids = [&](int seed) { return to_tensor(backend, {kB, kT}, random_ids(1, seed, kB * kT, 101)); };
  Gpt2 gpt2(backend, config, DType::f32, 1, Purpose::training, activations);
  gpt2.parameters().initialize(1);
  gpt2.parameters().update_shadow();
  Tape tape(backend);
  tape.backward(gpt2.loss(tape, ids(0), ids(1), {.dropout = DropoutPosition{1, 2, 3}}));
  return to_values(backend, gpt2.parameters().grads());
}

// OpenBLAS divides sums among threads, so its rounding depends on their number. All other code has a fixed
// order of sums.
TEST(CpuBackend, gradients_without_blas_have_the_same_bits_with_any_number_of_threads) {
  for (const CpuMatmul matmul : {CpuMatmul::tiled, CpuMatmul::packed, CpuMatmul::packed_bf16}) {
    const Values one = gradients(*make_cpu_backend(1, matmul), DType::f32);
    for (const int threads : {2, 3})
      EXPECT_EQ(gradients(*make_cpu_backend(threads, matmul), DType::f32), one);
  }
}

// For these shapes, OpenBLAS rounds differently with one and with two threads, on processors with AVX-512.
TEST(CpuBackend, products_with_blas_have_the_same_bits_on_a_reproducible_machine) {
  for (const auto& [rows, outputs, inputs] :
       {std::array<std::int64_t, 3>{64, 64, 5000}, {200, 300, 400}, {300, 70, 1000}}) {
    std::vector<Values> products;
    for (const int threads : {1, 2, 3}) {
      Machine machine;
      machine.backend = make_cpu_backend(threads, CpuMatmul::blas);
      machine.communicator = std::make_unique<SelfCommunicator>();
      make_reproducible(machine);
      Backend& backend = *machine.backend;
      const Tensor x = to_tensor(backend, DType::f32, {rows, inputs}, random_values(1, 0, rows * inputs));
      const Tensor w =
          to_tensor(backend, DType::f32, {outputs, inputs}, random_values(1, 1, outputs * inputs));
      const Tensor out = backend.allocate(DType::f32, {rows, outputs});
      backend.run(LinearForward{out, x, w, Tensor()});
      products.push_back(to_values(backend, out));
    }
    EXPECT_EQ(products[0], products[1]) << rows << " rows";
    EXPECT_EQ(products[0], products[2]) << rows << " rows";
  }
}

// Scores beyond 88, the logarithm of the largest f32: without the maximum, their exponentials are infinite.
TEST(CpuBackend, attention_takes_large_scores) {
  constexpr std::int64_t kT = 60, kC = 16;
  constexpr double kScale = 10;
  const Values qkv = random_values(8, 2, kT * 3 * kC);
  const auto attended = [&](Backend& backend, DType dtype) {
    const Tensor out = backend.allocate(dtype, {1, kT, kC}), lse = backend.allocate(dtype, {1, 1, kT});
    backend.run(
        AttentionForward{out, lse, to_tensor(backend, dtype, {1, kT, 3 * kC}, qkv), 1, kScale, Dropout{}});
    return std::pair(to_values(backend, out), to_values(backend, lse));
  };
  const auto naive = make_naive_backend(), fast = make_cpu_backend(1);
  const auto [out, lse] = attended(*naive, DType::f64);
  ASSERT_GT(*std::ranges::max_element(lse), 88);
  for (Backend* backend : {naive.get(), fast.get()}) {
    const auto [got, got_lse] = attended(*backend, DType::f32);
    EXPECT_LE(relative_error(got, out), plain_error_limit(DType::f32));
    EXPECT_LE(relative_error(got_lse, lse), plain_error_limit(DType::f32));
  }
}

TEST(CpuBackend, gradients_in_bf16_have_the_same_bits_with_any_number_of_threads) {
  for (const PackedKernels* halves : all_packed_kernels()) {
    if (halves->factors != Factors::bf16 || !halves->can_run()) continue;
    const auto on_threads = [&](int threads) {
      return gradients(*make_cpu_backend(threads, CpuMatmul::packed, std::make_unique<HostMemory>(), *halves),
                       DType::bf16);
    };
    const Values one = on_threads(1);
    for (const int threads : {2, 3}) EXPECT_EQ(on_threads(threads), one) << halves->name;
  }
}

// All bits of f32 with this upper half, and the neighbours of ties.
TEST(CpuBackend, rounds_to_bf16_as_the_conversion_of_files) {
  for (std::uint32_t upper = 0; upper < 1 << 16; upper += 7) {
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      ASSERT_EQ(stagegpt::rounded_to<Bf16>(value).bits, bf16_of_float(value)) << value;
    }
  }
}

TEST(CpuBackend, knows_its_matrix_products_by_name) {
  const auto name = [](CpuMatmul matmul) { return kCpuMatmulNames.at(static_cast<std::size_t>(matmul)); };
  EXPECT_EQ(name(CpuMatmul::naive), "naive");
  EXPECT_EQ(name(CpuMatmul::tiled), "tiled");
  EXPECT_EQ(name(CpuMatmul::packed), "packed");
  EXPECT_EQ(name(CpuMatmul::packed_bf16), "packed-bf16");
  EXPECT_EQ(name(CpuMatmul::blas), "blas");
}

TEST(CpuBackend, wants_a_thread_and_numbers_in_f32) {
  EXPECT_THROW(make_cpu_backend(0), InternalError);
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const Tensor x = backend->zeros(DType::f64, {4});
  EXPECT_THROW(backend->run(Add{x, x, x}), InternalError);
}

TEST(VectorExp, is_within_two_units_in_the_last_place) {
  double worst = 0;
  for (float x = -87; x <= 88.3f; x += 1e-3f) {
    const double exact = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double unit = static_cast<double>(std::nextafter(nearest, HUGE_VALF)) - nearest;
    worst = std::max(worst, std::abs(vector_exp(x) - exact) / unit);
  }
  EXPECT_LE(worst, 2);
}

TEST(VectorExp, stays_in_range_beyond_that_of_floats) {
  EXPECT_EQ(vector_exp(0), 1);
  for (const float x : {-88.0f, -1000.0f, -HUGE_VALF}) {
    EXPECT_GE(vector_exp(x), 0) << x;
    EXPECT_LE(vector_exp(x), 2e-38f) << x;
  }
  for (const float x : {88.4f, 1000.0f, HUGE_VALF}) {
    EXPECT_GE(vector_exp(x), 2e38f) << x;
    EXPECT_LT(vector_exp(x), HUGE_VALF) << x;
  }
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace stagegpt::test
