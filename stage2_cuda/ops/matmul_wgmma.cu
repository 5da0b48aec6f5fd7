// GEMM in bf16 for compute capability 9.0.
#include <limits>
#include <utility>

#include "stage2_cuda/device_memory_source.h"
#include "stage2_cuda/kernels/matmul_wgmma.cuh"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Whether the copy engine can read a factor (rows,columns).
bool can_copy(const MatrixOf<Bf16>& matrix, std::int64_t rows, std::int64_t columns) {
  const std::int64_t length = matrix.transposed ? rows : columns;
  return matrix.ld == length && length % 8 == 0 && is_aligned(matrix.data);
}

// The kernels count rows and columns in int, and write four elements at a time.
template <class Result>
bool can_compute(const ProductOf<Bf16, Result>& p) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() / 2;
  const bool in_fours =
      p.n % 4 == 0 && p.ldc % 4 == 0 && is_aligned(p.c) && is_aligned(p.pre) && is_aligned(p.bias);
  return p.batch == 1 && p.scale == 1 && in_fours && std::max({p.m, p.n, p.k}) <= kMost &&
         can_copy(p.a, p.m, p.k) && can_copy(p.b, p.k, p.n);
}

class WgmmaGemm final : public Gemm {
 public:
  explicit WgmmaGemm(std::unique_ptr<Gemm> library)
      : library_(std::move(library)), scratch_(device_block(static_cast<std::size_t>(kScratch))) {}

  void run(const Product& product, StreamHandle stream) override { library_->run(product, stream); }
  void run(const ProductOf<Bf16, Bf16>& product, StreamHandle stream) override {
    if (is_empty(product)) return;
    if (!computes(product)) return library_->run(product, stream);
    const WgmmaShape shape = wgmma_shape(product, WgmmaPersistent::R, WgmmaPersistent::C);
    if (product.b.transposed)
      return launch_ring<WgmmaPersistent, false, true>(stream, product, product.c, shape);
    launch_ring<WgmmaPersistent, false, false>(stream, product, product.c, shape);
  }
  void run(const ProductOf<Bf16, float>& product, StreamHandle stream) override {
    if (is_empty(product)) return;
    if (!computes(product)) return library_->run(product, stream);
    WgmmaShape shape = wgmma_shape(product, WgmmaPersistent::R, WgmmaPersistent::C);
    const std::int64_t n = product.m * product.n;
    divide_sums(shape, n, kScratch / static_cast<std::int64_t>(sizeof(float)));
    if (shape.splits == 1)
      return launch_ring<WgmmaPersistent, true, false>(stream, product, product.c, shape);
    float* const parts = static_cast<float*>(scratch_.get());
    shape.accumulate = false;
    shape.ldc = product.n;
    launch_ring<WgmmaPersistent, true, false>(stream, product, parts, shape);
    launch_elements<add_parts_kernel>(stream, n, product.c, static_cast<const float*>(parts), shape.splits,
                                      static_cast<int>(product.n), product.ldc, product.accumulate);
  }
  using Gemm::has_epilogue;
  bool has_epilogue(const ProductOf<Bf16, Bf16>& product) override {
    return computes(product) || library_->has_epilogue(product);
  }
  bool has_epilogue(const ProductOf<Bf16, float>& product) override {
    ProductOf<Bf16, float> plain = product;
    plain.epilogue = Epilogue::none;
    return !computes(plain) && library_->has_epilogue(product);
  }

 private:
  static constexpr std::int64_t kScratch = std::int64_t{32} << 20;  // bytes

  // Forwards, and gradients of activations.
  static bool computes(const ProductOf<Bf16, Bf16>& p) {
    return !p.a.transposed && p.epilogue != Epilogue::row_sums && can_compute(p);
  }
  // Gradients of weights.
  static bool computes(const ProductOf<Bf16, float>& p) {
    return p.a.transposed && !p.b.transposed && !p.bias && p.epilogue == Epilogue::none && can_compute(p);
  }

  std::unique_ptr<Gemm> library_;
  DeviceBlock scratch_;
};

// c = a · b + bias, nothing transposed.
template <class Sizes>
void multiply(StreamHandle stream, const ProductOf<Bf16, Bf16>& p) {
  launch_ring<Sizes, false, false>(stream, p, p.c, wgmma_shape(p, Sizes::R, Sizes::C));
}

}  // namespace

std::unique_ptr<Gemm> make_wgmma_gemm(std::unique_ptr<Gemm> library) {
  return std::make_unique<WgmmaGemm>(std::move(library));
}

void matmul_v7(StreamHandle stream, const ProductOf<Bf16, Bf16>& p) {
  const WgmmaShape shape = wgmma_shape(p, kWgmmaTile, kWgmmaTile);
  launch<matmul_wgmma_kernel>(
      dim3(static_cast<unsigned>(shape.row_tiles), static_cast<unsigned>(shape.column_tiles)),
      dim3(2 * kWarpgroup), shared_bytes_of<WgmmaTiles>(), stream, p.c, p.a.data, p.b.data, p.bias,
      static_cast<int>(p.k), shape);
}
void matmul_v8(StreamHandle stream, const ProductOf<Bf16, Bf16>& p) { multiply<WgmmaRing>(stream, p); }
void matmul_v9(StreamHandle stream, const ProductOf<Bf16, Bf16>& p) { multiply<WgmmaPersistent>(stream, p); }

}  // namespace stagegpt::gpu
