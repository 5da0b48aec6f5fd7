#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/wgmma.h"
#include "tests/support/backends.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using gpu::GpuAttention;
using gpu::GpuMatmul;

std::function<std::unique_ptr<Backend>()> gpu_backend(GpuMatmul matmul, bool fused = true,
                                                      gpu::Precision precision = gpu::Precision::f32,
                                                      GpuAttention attention = GpuAttention::flash) {
  return [=] {
    gpu::open_device(0);
    // Flash attention calls no GEMM. The versions of GEMM in f32 use materialised attention, which calls
    // GEMM.
    const bool flash = (matmul == GpuMatmul::cublaslt || matmul == GpuMatmul::wgmma) && fused;
    const bool absent =
        matmul == GpuMatmul::wgmma && !gpu::why_no_wgmma().empty();  // then gpu_bf16 once more
    std::unique_ptr<Backend> backend =
        gpu::make_cuda_backend({.matmul = absent ? GpuMatmul::cublaslt : matmul,
                                .attention = flash ? attention : GpuAttention::materialised,
                                .precision = precision});
    backend->set_fused(fused);
    return backend;
  };
}

}  // namespace

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> backends = {
      {"gpu_cublaslt", gpu_backend(GpuMatmul::cublaslt), {DType::f32}},
      {"gpu_naive", gpu_backend(GpuMatmul::naive), {DType::f32}},
      {"gpu_tiled", gpu_backend(GpuMatmul::tiled), {DType::f32}},
      {"gpu_vectorised", gpu_backend(GpuMatmul::vectorised), {DType::f32}},
      {"gpu_unfused", gpu_backend(GpuMatmul::cublaslt, /*fused=*/false), {DType::f32}},
      {.name = "gpu_tf32",
       .make = gpu_backend(GpuMatmul::cublaslt, /*fused=*/true, gpu::Precision::tf32),
       .dtypes = {DType::f32},
       .rounding = kTf32Roundoff},
      {.name = "gpu_bf16",
       .make = gpu_backend(GpuMatmul::cublaslt),
       .dtypes = {DType::bf16},
       .rounding = unit_roundoff(DType::bf16)},
      {.name = "gpu_wgmma",
       .make = gpu_backend(GpuMatmul::wgmma, /*fused=*/true, gpu::Precision::bf16),
       .dtypes = {DType::bf16},
       .products_only = true,
       .rounding = unit_roundoff(DType::bf16),
       .replaces_library = [] { return gpu::why_no_wgmma().empty(); }},
      // What gpu_bf16 does on a device of another compute capability than 9.0.
      {.name = "gpu_bf16_mma",
       .make = gpu_backend(GpuMatmul::cublaslt, /*fused=*/true, gpu::Precision::f32, GpuAttention::flash_mma),
       .dtypes = {DType::bf16},
       .attention_only = true,
       .rounding = unit_roundoff(DType::bf16)},
  };
  return backends;
}

}  // namespace stagegpt::test
