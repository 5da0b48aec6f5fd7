#include <algorithm>

#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/emulation/settings.h"
#include "tests/support/backends.h"
#include "tests/support/sanitized.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

using gpu::GpuAttention;
using gpu::GpuMatmul;
using gpu::emulation::Order;

std::function<std::unique_ptr<Backend>()> emulated(gpu::emulation::ThreadOrder order, GpuMatmul matmul,
                                                   bool fused = true, bool late = false,
                                                   gpu::Precision precision = gpu::Precision::f32,
                                                   int capability = 80) {
  return [=] {
    gpu::emulation::set_compute_capability(capability);
    gpu::emulation::set_stream_time(late ? gpu::emulation::StreamTime::late
                                         : gpu::emulation::StreamTime::at_once);
    gpu::emulation::set_thread_order(order);
    gpu::open_device(0);
    // Flash attention calls no GEMM. The versions of GEMM in f32 use materialised attention, which calls
    // GEMM.
    const bool flash = (matmul == GpuMatmul::cublaslt || matmul == GpuMatmul::wgmma) && fused;
    std::unique_ptr<Backend> backend =
        gpu::make_cuda_backend({.matmul = matmul,
                                .attention = flash ? GpuAttention::flash : GpuAttention::materialised,
                                .precision = precision});
    backend->set_fused(fused);
    return backend;
  };
}

}  // namespace

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> backends = [] {
    std::vector<BackendUnderTest> all;
    const auto add = [&](const char* name, const auto& make, bool products_only = false) {
      all.push_back({name, make, {DType::f32}, products_only});
    };
    constexpr bool kProductsOnly = true;
    add("emulated_random", emulated({Order::random, 1}, GpuMatmul::cublaslt));
    add("emulated_naive", emulated({Order::forward}, GpuMatmul::naive), kProductsOnly);
    add("emulated_tiled_random", emulated({Order::random, 2}, GpuMatmul::tiled), kProductsOnly);
    add("emulated_vectorised_random", emulated({Order::random, 3}, GpuMatmul::vectorised), kProductsOnly);
    add("emulated_unfused", emulated({Order::forward}, GpuMatmul::cublaslt, /*fused=*/false));
    all.push_back({.name = "emulated_bf16",
                   .make = emulated({Order::random, 4}, GpuMatmul::cublaslt),
                   .dtypes = {DType::bf16},
                   .rounding = unit_roundoff(DType::bf16)});
    for (const auto& [name, order] : {std::pair("emulated_bf16_9_0", Order::random),
                                      {"emulated_bf16_9_0_forward", Order::forward},
                                      {"emulated_bf16_9_0_reverse", Order::reverse}}) {
      all.push_back({.name = name,
                     .make = emulated({order, 5}, GpuMatmul::cublaslt, /*fused=*/true, /*late=*/false,
                                      gpu::Precision::f32, 90),
                     .dtypes = {DType::bf16},
                     .attention_only = true,
                     .rounding = unit_roundoff(DType::bf16),
                     .brief = order != Order::random});
    }
    all.push_back({.name = "emulated_wgmma",
                   .make = emulated({Order::random, 7}, GpuMatmul::wgmma, /*fused=*/true, /*late=*/false,
                                    gpu::Precision::bf16, 90),
                   .dtypes = {DType::bf16},
                   .products_only = true,
                   .rounding = unit_roundoff(DType::bf16),
                   .replaces_library = [] { return true; }});
    if (kSanitized) {  // they find the same errors in every thread order, and in TF32
      for (BackendUnderTest& backend : all)
        backend.brief = backend.name != "emulated_random" && backend.name != "emulated_bf16";
      return all;
    }
    all.push_back({.name = "emulated_tf32",
                   .make = emulated({Order::forward}, GpuMatmul::cublaslt, /*fused=*/true, /*late=*/false,
                                    gpu::Precision::tf32),
                   .dtypes = {DType::f32},
                   .rounding = kTf32Roundoff});
    add("emulated_forward", emulated({Order::forward}, GpuMatmul::cublaslt));
    add("emulated_reverse", emulated({Order::reverse}, GpuMatmul::cublaslt));
    add("emulated_tiled_forward", emulated({Order::forward}, GpuMatmul::tiled), kProductsOnly);
    add("emulated_vectorised_reverse", emulated({Order::reverse}, GpuMatmul::vectorised), kProductsOnly);
    add("emulated_late", emulated({Order::forward}, GpuMatmul::cublaslt, /*fused=*/true, /*late=*/true));
    add("emulated_7_5", emulated({Order::random, 6}, GpuMatmul::cublaslt, /*fused=*/true, /*late=*/false,
                                 gpu::Precision::f32, 75));
    for (const char* name : {"emulated_forward", "emulated_reverse", "emulated_tiled_forward",
                             "emulated_vectorised_reverse", "emulated_late", "emulated_7_5"})
      std::ranges::find(all, name, &BackendUnderTest::name)->brief = true;
    return all;
  }();
  return backends;
}

}  // namespace stagegpt::test
