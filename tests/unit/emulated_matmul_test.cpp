// The hand-written products in f32, on the emulator in every order of threads, at sizes that fill their tiles
// and sizes that do not. The numbers are small and whole, and every sum is exact: a wrong element is a wrong
// index.
#include <optional>

#include "stage0_serial/kernels/matmul.h"
#include "stage2_cuda/kernels/matmul.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/matrix.h"

namespace stagegpt::test {
namespace {

using MatmulVersion = void (*)(gpu::StreamHandle, const gpu::Product&);

struct OfProduct {
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false, accumulate = false;
  std::int64_t batch = 1;
  float scale = 1;
};

std::string described(const OfProduct& p) {
  return concat('(', p.m, ',', p.k, ')', p.a_transposed ? "ᵀ" : "", " · (", p.k, ',', p.n, ')',
                p.b_transposed ? "ᵀ" : "", p.accumulate ? " +=" : "", ", batch ", p.batch, ", scale ",
                p.scale);
}

constexpr int kGapOfRows = 3;  // elements between the rows of a matrix in memory

// A batch of matrices on the host and on the device.
struct DeviceMatrices {
  DeviceMatrices(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed,
                 std::uint32_t seed)
      : host(batch * (transposed ? columns : rows), transposed ? rows : columns, false, kGapOfRows),
        stride(static_cast<std::int64_t>(host.values.size()) / batch),
        is_transposed(transposed) {
    host.fill_with_integers(seed);
    device.emplace(host.values);
  }
  gpu::Matrix argument() const { return {device->data(), host.length, is_transposed, stride}; }
  MatrixView<float> view(std::int64_t i) const {
    const float* const data = host.values.data() + i * stride;
    return is_transposed ? row_major(data, host.length).transposed() : row_major(data, host.length);
  }

  test::Matrix host;
  std::int64_t stride;
  bool is_transposed;
  std::optional<DeviceArray<float>> device;
};

// Expects c = scale · a · b + bias, or += for each of a batch, and nothing between the rows of c.
void expect_product(MatmulVersion version, const OfProduct& p) {
  const DeviceMatrices a(p.batch, p.m, p.k, p.a_transposed, 1), b(p.batch, p.k, p.n, p.b_transposed, 2);
  DeviceMatrices c(p.batch, p.m, p.n, false, 3);
  test::Matrix bias(1, p.n, false, 0);
  bias.fill_with_integers(4);
  const DeviceArray<float> bias_on_device(bias.values);
  const bool with_bias = !p.accumulate && p.batch == 1;  // a Product has no other
  version(nullptr, {.c = c.device->data(),
                    .ldc = c.host.length,
                    .stride_c = c.stride,
                    .a = a.argument(),
                    .b = b.argument(),
                    .m = p.m,
                    .n = p.n,
                    .k = p.k,
                    .batch = p.batch,
                    .scale = p.scale,
                    .accumulate = p.accumulate,
                    .bias = with_bias ? bias_on_device.data() : nullptr});
  const std::vector<float> got = c.device->values();
  for (std::int64_t i = 0; i < p.batch; ++i) {
    std::vector<float> product(static_cast<std::size_t>(p.m * p.n));
    naive::matmul(product.data(), p.n, a.view(i), b.view(i), {p.m, p.n, p.k}, false);
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = 0; column < c.host.length; ++column) {
        const auto at = static_cast<std::size_t>(i * c.stride + row * c.host.length + column);
        float want = c.host.values[at];
        if (column < p.n) {
          want = (p.accumulate ? want : 0) + p.scale * product[static_cast<std::size_t>(row * p.n + column)] +
                 (with_bias ? bias.values[static_cast<std::size_t>(column)] : 0);
        }
        if (got[at] == want) continue;
        ADD_FAILURE() << described(p) << ": element (" << row << ", " << column << ") of matrix " << i
                      << " is " << got[at] << ", not " << want
                      << (column < p.n ? "" : "; it lies behind the row");
        return;
      }
    }
  }
}

class MatmulVersions : public InEveryOrder {
 protected:
  // `tile`: the side of a block's tile of c.
  static void expect_right(MatmulVersion version, std::int64_t tile) {
    for (const std::int64_t m : {std::int64_t{1}, tile - 1, tile, tile + 1}) {
      expect_product(version, {.m = m, .n = tile + 3, .k = 17});
      expect_product(version, {.m = tile + 3, .n = m, .k = 17, .a_transposed = true, .b_transposed = true});
    }
    for (const std::int64_t k : {1, 15, 16, 33}) {
      expect_product(version, {.m = 5, .n = 7, .k = k, .b_transposed = true});
      expect_product(version, {.m = 5, .n = 7, .k = k, .a_transposed = true, .accumulate = true});
    }
    expect_product(version, {.m = 9, .n = 10, .k = 11, .batch = 3, .scale = 0.5F});
    expect_product(version, {.m = 9, .n = 10, .k = 11, .accumulate = true, .batch = 2, .scale = 2});
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, MatmulVersions, kOrders, order_name);

TEST_P(MatmulVersions, naive_is_exact) { expect_right(gpu::matmul_naive, 16); }
TEST_P(MatmulVersions, tiled_is_exact) { expect_right(gpu::matmul_tiled, gpu::kTile); }
TEST_P(MatmulVersions, vectorised_is_exact) { expect_right(gpu::matmul_vectorised, gpu::kBlockTile); }

}  // namespace
}  // namespace stagegpt::test
