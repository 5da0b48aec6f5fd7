// The products that cuBLASLt computes on a GPU, by the host's OpenBLAS.
#include "stage2_cuda/gemm.h"

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

// The precision asked for makes no difference: TF32's factors are not rounded here, so that a product is more
// exact than a GPU's.
class BlasGemm final : public Gemm {
 public:
  void run(const Product& product, StreamHandle stream) override {
    submit(stream, [product] { multiply(product); });
  }

 private:
  static void multiply(const Product& product) {
    const auto& [c, ldc, stride_c, a, b, m, n, k, batch, scale, accumulate, bias] = product;
    if (is_empty(product)) return;
    const OpenBlas& blas = OpenBlas::instance();
    blas.set_threads(1);  // another number gives other bits, and the kernels around it take far longer
    for (std::int64_t i = 0; i < batch; ++i) {
      blas.sgemm(on_host(c) + i * stride_c, ldc, view(a, i), view(b, i), {m, n, k}, accumulate, scale);
    }
    if (bias != nullptr) add_bias(on_host(c), product);
  }
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(Precision) {
  OpenBlas::instance();  // loads the library: a missing one is reported here, not in the first step
  return std::make_unique<BlasGemm>();
}

}  // namespace stagegpt::gpu
