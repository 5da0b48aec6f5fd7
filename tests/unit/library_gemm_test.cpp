// GEMM by the library (cuBLASLt or the host's BLAS), compared with f64: transposed operands, batches, padded
// rows, scales, accumulation, biases and their gradients, and epilogues.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/tensor/half_floats.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/gemm.h"
#include "tests/support/tensors.h"

namespace stagegpt::gpu {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::uint32_t stream, std::int64_t n) {
  const test::Values values = test::random_values(7, stream, n);
  return {values.begin(), values.end()};
}

// An array on the device, initialised with values of the host.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const std::vector<T>& values, StreamHandle stream)
      : bytes_(values.size() * sizeof(T)), stream_(stream), device_(static_cast<T*>(allocate(bytes_))) {
    void* const pinned = allocate_pinned(bytes_);
    std::copy(values.begin(), values.end(), static_cast<T*>(pinned));
    copy_to_device(device_, pinned, bytes_, stream);
    synchronize(stream);
    deallocate_pinned(pinned);
  }
  ~DeviceArray() { deallocate(device_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return device_; }
  std::vector<T> on_host() const {
    auto* const pinned = static_cast<T*>(allocate_pinned(bytes_));
    copy_to_host(pinned, device_, bytes_, stream_);
    synchronize(stream_);
    const std::vector<T> values(pinned, pinned + bytes_ / sizeof(T));
    deallocate_pinned(pinned);
    return values;
  }

 private:
  std::size_t bytes_;
  StreamHandle stream_;
  T* device_;
};
using DeviceFloats = DeviceArray<float>;

struct GemmCase {
  const char* name;
  bool transposed_a = false, transposed_b = false, accumulate = false, bias = false;
  std::int64_t batch = 1, apart = 0;  // apart: padding between rows
  float scale = 1;
  std::int64_t m = 9, n = 13, k = 21;
};

std::ostream& operator<<(std::ostream& out, const GemmCase& c) { return out << c.name; }

class LibraryGemm : public testing::TestWithParam<GemmCase> {
 protected:
  void SetUp() override { open_device(0); }
};

// The memory layout of a factor (rows,columns).
struct Stored {
  Stored(std::int64_t rows, std::int64_t columns, bool as_transpose, const GemmCase& c)
      : ld((as_transpose ? rows : columns) + c.apart),
        stride((as_transpose ? columns : rows) * ld + c.apart),
        transposed(as_transpose),
        size(c.batch * stride) {}

  double at(const Floats& values, std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return values[index(batch, row, column)];
  }
  std::size_t index(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(batch * stride + (transposed ? column * ld + row : row * ld + column));
  }
  std::int64_t ld, stride;
  bool transposed;
  std::int64_t size;
};

TEST_P(LibraryGemm, is_the_product_in_f64) {
  const GemmCase c = GetParam();
  const Stored a(c.m, c.k, c.transposed_a, c), b(c.k, c.n, c.transposed_b, c), out(c.m, c.n, false, c);
  const Floats host_a = random_floats(1, a.size), host_b = random_floats(2, b.size);
  const Floats before = random_floats(3, out.size), bias = random_floats(4, c.n);
  const Stream stream;
  const DeviceFloats device_a(host_a, stream), device_b(host_b, stream), device_c(before, stream),
      device_bias(bias, stream);
  const Product product{.c = device_c.get(),
                        .ldc = out.ld,
                        .stride_c = out.stride,
                        .a = {device_a.get(), a.ld, a.transposed, a.stride},
                        .b = {device_b.get(), b.ld, b.transposed, b.stride},
                        .m = c.m,
                        .n = c.n,
                        .k = c.k,
                        .batch = c.batch,
                        .scale = c.scale,
                        .accumulate = c.accumulate,
                        .bias = c.bias ? device_bias.get() : nullptr};
  make_library_gemm(Precision::f32)->run(product, stream);
  synchronize(stream);

  Floats after = device_c.on_host();
  for (std::int64_t i = 0; i < c.batch; ++i) {
    for (std::int64_t m = 0; m < c.m; ++m) {
      for (std::int64_t n = 0; n < c.n; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < c.k; ++k) sum += a.at(host_a, i, m, k) * b.at(host_b, i, k, n);
        double right = c.scale * sum + (c.bias ? bias[static_cast<std::size_t>(n)] : 0);
        const std::size_t index = out.index(i, m, n);
        if (c.accumulate) right += before[index];
        ASSERT_NEAR(after[index], right, 2e-5) << "batch " << i << ", row " << m << ", column " << n;
        after[index] = before[index];
      }
    }
  }
  EXPECT_EQ(after, before) << "written between rows";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LibraryGemm,
    testing::Values(GemmCase{.name = "plain"}, GemmCase{.name = "transposed_a", .transposed_a = true},
                    GemmCase{.name = "transposed_b", .transposed_b = true},
                    GemmCase{.name = "transposed_both", .transposed_a = true, .transposed_b = true},
                    GemmCase{.name = "accumulate", .accumulate = true},
                    GemmCase{.name = "scaled", .accumulate = true, .scale = -0.5f},
                    GemmCase{.name = "bias", .transposed_b = true, .bias = true, .apart = 3},
                    GemmCase{.name = "batch", .transposed_b = true, .batch = 4, .apart = 5, .scale = 0.25f},
                    GemmCase{.name = "one_row", .transposed_b = true, .bias = true, .m = 1},
                    GemmCase{.name = "one_column", .transposed_a = true, .n = 1},
                    GemmCase{.name = "outer", .accumulate = true, .k = 1}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Random numbers in bf16, on the host and on the device.
struct RandomHalves {
  RandomHalves(std::uint32_t stream, std::int64_t n, StreamHandle on)
      : host(narrowed(random_floats(stream, n))), device(host, on) {}
  static std::vector<Bf16> narrowed(const Floats& floats) {
    std::vector<Bf16> halves;
    for (const float value : floats) halves.push_back({bf16_of_float(value)});
    return halves;
  }
  double operator[](std::int64_t i) const { return as_float(host[static_cast<std::size_t>(i)]); }

  std::vector<Bf16> host;
  DeviceArray<Bf16> device;
};

Floats floats_of(const std::vector<Bf16>& halves) {
  Floats floats;
  for (const Bf16 half : halves) floats.push_back(as_float(half));
  return floats;
}

// gelu_new(x) and its derivative, from their definition.
double defined_gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double defined_slope(double x) {
  constexpr double kStep = 1e-6;
  return (defined_gelu(x + kStep) - defined_gelu(x - kStep)) / (2 * kStep);
}

// Products with the epilogues of an MLP, with and without a bias.
class LibraryGemmEpilogue : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::int64_t kM = 9, kN = 16, kK = 21;

  ProductOf<Bf16, Bf16> product(Epilogue epilogue) const {
    return {.c = c_.device.get(),
            .ldc = kN,
            .a = {a_.device.get(), kK},
            .b = {b_.device.get(), kN},
            .m = kM,
            .n = kN,
            .k = kK,
            .bias = has_bias(epilogue) ? bias_.device.get() : nullptr,
            .epilogue = epilogue,
            .pre = pre_.device.get()};
  }
  bool has_bias(Epilogue epilogue) const { return GetParam() && epilogue == Epilogue::gelu; }
  double defined_product(Epilogue epilogue, std::int64_t i) const {
    double sum = has_bias(epilogue) ? bias_[i % kN] : 0;
    for (std::int64_t k = 0; k < kK; ++k) sum += a_[i / kN * kK + k] * b_[k * kN + i % kN];
    return sum;
  }
  // Two roundings to bf16, and an approximate tanh.
  static void expect_near(Bf16 got, double right, std::int64_t i) {
    EXPECT_NEAR(as_float(got), right, 0x1p-7 * std::abs(right) + 4e-3) << i;
  }

  struct OpenDevice {
    OpenDevice() { open_device(0); }
  } device_;
  Stream stream_;
  std::unique_ptr<Gemm> gemm_ = make_library_gemm(Precision::bf16);
  RandomHalves a_{1, kM*kK, stream_}, b_{2, kK*kN, stream_}, c_{3, kM*kN, stream_}, pre_{4, kM*kN, stream_},
      bias_{5, kN, stream_};
};

TEST_P(LibraryGemmEpilogue, is_gelu) {
  const ProductOf<Bf16, Bf16> gelu = product(Epilogue::gelu);
  if (!gemm_->has_epilogue(gelu)) GTEST_SKIP() << "the library has no algorithm with GELU";
  gemm_->run(gelu, stream_);
  const std::vector<Bf16> out = c_.device.on_host(), pre = pre_.device.on_host();
  for (std::int64_t i = 0; i < kM * kN; ++i) {
    const double x = defined_product(Epilogue::gelu, i);
    expect_near(pre[static_cast<std::size_t>(i)], x, i);
    expect_near(out[static_cast<std::size_t>(i)], defined_gelu(x), i);
  }
}

TEST_P(LibraryGemmEpilogue, is_the_derivative_of_gelu) {
  const ProductOf<Bf16, Bf16> backward = product(Epilogue::gelu_backward);
  if (!gemm_->has_epilogue(backward)) GTEST_SKIP() << "the library has no algorithm with GELU's derivative";
  gemm_->run(backward, stream_);
  const std::vector<Bf16> out = c_.device.on_host();
  for (std::int64_t i = 0; i < kM * kN; ++i) {
    expect_near(out[static_cast<std::size_t>(i)],
                defined_product(Epilogue::gelu_backward, i) * defined_slope(pre_[i]), i);
  }
  EXPECT_EQ(floats_of(pre_.device.on_host()), floats_of(pre_.host));
}

INSTANTIATE_TEST_SUITE_P(Biases, LibraryGemmEpilogue, testing::Bool());

TEST(LibraryGemmEpilogues, need_rows_of_eight_elements) {
  open_device(0);
  const Stream stream;
  const RandomHalves x(1, 100, stream);
  ProductOf<Bf16, Bf16> product{.c = x.device.get(),
                                .ldc = 12,
                                .a = {x.device.get(), 5},
                                .b = {x.device.get(), 12},
                                .m = 2,
                                .n = 12,
                                .k = 5,
                                .epilogue = Epilogue::gelu,
                                .pre = x.device.get()};
  EXPECT_FALSE(make_library_gemm(Precision::bf16)->has_epilogue(product));
}

// The gradients of a layer's weights, doutᵀ · x, and of its bias, the sums of the columns of dout.
class LibraryGemmRowSums : public testing::TestWithParam<bool> {};

TEST_P(LibraryGemmRowSums, are_the_gradient_of_a_bias) {
  open_device(0);
  constexpr std::int64_t kN = 21, kO = 24, kI = 16;
  const bool accumulate = GetParam();
  const Stream stream;
  const RandomHalves dout(1, kN * kO, stream), x(2, kN * kI, stream);
  const Floats before = random_floats(3, kO * kI);
  const DeviceFloats dw(before, stream), dbias(random_floats(4, kO), stream);
  const ProductOf<Bf16, float> product{.c = dw.get(),
                                       .ldc = kI,
                                       .a = {dout.device.get(), kO, /*transposed=*/true},
                                       .b = {x.device.get(), kI},
                                       .m = kO,
                                       .n = kI,
                                       .k = kN,
                                       .accumulate = accumulate,
                                       .epilogue = Epilogue::row_sums,
                                       .row_sums = dbias.get()};
  const std::unique_ptr<Gemm> gemm = make_library_gemm(Precision::bf16);
  if (!gemm->has_epilogue(product)) GTEST_SKIP() << "the library has no algorithm with sums of rows";
  gemm->run(product, stream);
  const Floats got_dw = dw.on_host(), got_dbias = dbias.on_host();
  for (std::int64_t o = 0; o < kO; ++o) {
    double column = 0;
    for (std::int64_t n = 0; n < kN; ++n) column += dout[n * kO + o];
    EXPECT_NEAR(got_dbias[static_cast<std::size_t>(o)], column, 2e-5) << o;
    for (std::int64_t i = 0; i < kI; ++i) {
      const auto at = static_cast<std::size_t>(o * kI + i);
      double right = accumulate ? before[at] : 0;
      for (std::int64_t n = 0; n < kN; ++n) right += dout[n * kO + o] * x[n * kI + i];
      EXPECT_NEAR(got_dw[at], right, 2e-5) << "row " << o << ", column " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Accumulating, LibraryGemmRowSums, testing::Bool());

TEST(LibraryGemmSizes, of_no_elements_do_nothing) {
  open_device(0);
  const Stream stream;
  const std::unique_ptr<Gemm> gemm = make_library_gemm(Precision::f32);
  Product product;
  product.m = 0, product.n = 3, product.k = 2;
  gemm->run(product, stream);
  product.m = 3, product.batch = 0;
  gemm->run(product, stream);
  synchronize(stream);
}

TEST(LibraryGemmSizes, what_is_no_product_is_refused) {
  open_device(0);
  const Stream stream;
  const std::unique_ptr<Gemm> f32 = make_library_gemm(Precision::f32),
                              bf16 = make_library_gemm(Precision::bf16);
  const float bias = 0;
  float sum = 0;
  EXPECT_THROW(f32->run(Product{.a = {}, .b = {}, .m = 1, .n = 1}, stream), InternalError)
      << "a sum of no products";
  EXPECT_THROW(f32->run(Product{.a = {}, .b = {}, .m = 1, .n = 1, .k = 1, .batch = 2, .bias = &bias}, stream),
               InternalError);
  const ProductOf<Bf16, float> row_sums{
      .a = {}, .b = {}, .m = 1, .n = 1, .k = 1, .batch = 2, .epilogue = Epilogue::row_sums, .row_sums = &sum};
  EXPECT_THROW(bf16->run(row_sums, stream), InternalError);
}

}  // namespace
}  // namespace stagegpt::gpu
