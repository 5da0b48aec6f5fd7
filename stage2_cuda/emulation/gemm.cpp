// The library's GEMM under emulation, c = scale · a · b + bias: OpenBLAS in place of cuBLASLt.
#include "stage2_cuda/gemm.h"

#include <vector>

#include "common/tensor/half_floats.h"
#include "stage0_serial/blas/openblas.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/launch.h"

namespace stagegpt::gpu {
namespace {

template <class T>
T* on_host(T* device) {
  return static_cast<T*>(emulation::device_memory().view(device));
}

MatrixView<float> view(const Matrix& matrix, std::int64_t index) {
  const MatrixView<float> stored =
      stagegpt::row_major(on_host(matrix.data) + index * matrix.stride, matrix.ld);
  return matrix.transposed ? stored.transposed() : stored;
}

void add_bias(float* c, const Product& product) {
  const float* const bias = on_host(product.bias);
  for (std::int64_t m = 0; m < product.m; ++m) {
    for (std::int64_t n = 0; n < product.n; ++n) c[m * product.ldc + n] += bias[n];
  }
}

// A row-major copy of an operand, rounded to TF32.
std::vector<float> rounded(const MatrixView<float>& factor, std::int64_t rows, std::int64_t columns) {
  std::vector<float> copy;
  copy.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      copy.push_back(rounded_to_tf32(factor(row, column)));
  }
  return copy;
}

class BlasGemm final : public Gemm {
 public:
  explicit BlasGemm(Precision precision) : precision_(precision) {}
  void run(const Product& product, StreamHandle stream) override {
    submit(stream, [product, precision = precision_] { multiply(product, precision); });
  }

 private:
  static void multiply(const Product& product, Precision precision) {
    const auto& [c, ldc, stride_c, a, b, m, n, k, batch, scale, accumulate, bias] = product;
    if (is_empty(product)) return;
    const OpenBlas& blas = OpenBlas::instance();
    blas.set_threads(1);  // for the same bits everywhere; GEMM takes little of an emulated step's time
    for (std::int64_t i = 0; i < batch; ++i) {
      float* const out = on_host(c) + i * stride_c;
      if (precision == Precision::tf32) {
        const std::vector<float> left = rounded(view(a, i), m, k), right = rounded(view(b, i), k, n);
        blas.sgemm(out, ldc, stagegpt::row_major(left.data(), k), stagegpt::row_major(right.data(), n),
                   {m, n, k}, accumulate, scale);
      } else {
        blas.sgemm(out, ldc, view(a, i), view(b, i), {m, n, k}, accumulate, scale);
      }
    }
    if (bias != nullptr) add_bias(on_host(c), product);
  }

  Precision precision_;
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(Precision precision) {
  OpenBlas::instance();  // loads the library, so that an error is reported before the first step
  return std::make_unique<BlasGemm>(precision);
}

}  // namespace stagegpt::gpu
