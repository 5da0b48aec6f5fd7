#include <algorithm>

#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/backends.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

std::function<std::unique_ptr<Backend>()> cpu(CpuMatmul matmul, int threads, bool fused = true) {
  return [=] {
    std::unique_ptr<Backend> backend = make_cpu_backend(threads, matmul);
    backend->set_fused(fused);
    return backend;
  };
}

// Kernels of products in bf16 for a processor that cannot multiply bf16.
const PackedKernels& widening() {
  return **std::ranges::find_if(all_packed_kernels(), [](const PackedKernels* kernels) {
    return kernels->factors == Factors::bf16 && !kernels->multiplies_bf16() && kernels->can_run();
  });
}

}  // namespace

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> backends = {
      {"naive", make_naive_backend, {DType::f32, DType::f64}},
      {"cpu_naive_1_thread", cpu(CpuMatmul::naive, 1), {DType::f32}},
      {"cpu_tiled_1_thread", cpu(CpuMatmul::tiled, 1), {DType::f32}},
      {"cpu_tiled_3_threads", cpu(CpuMatmul::tiled, 3), {DType::f32}},
      {"cpu_blas_2_threads", cpu(CpuMatmul::blas, 2), {DType::f32}},
      {"cpu_packed_1_thread", cpu(CpuMatmul::packed, 1), {DType::f32}},
      {"cpu_packed_2_threads", cpu(CpuMatmul::packed, 2), {DType::f32}},
      {"cpu_packed_3_threads", cpu(CpuMatmul::packed, 3), {DType::f32}},
      {.name = "cpu_packed_bf16",
       .make = cpu(CpuMatmul::packed_bf16, 2),
       .dtypes = {DType::f32},
       .rounding = unit_roundoff(DType::bf16)},
      {.name = "cpu_bf16",
       .make = cpu(CpuMatmul::packed, 3),
       .dtypes = {DType::bf16},
       .rounding = unit_roundoff(DType::bf16)},
      {.name = "cpu_bf16_widened",
       .make =
           [] { return make_cpu_backend(2, CpuMatmul::packed, std::make_unique<HostMemory>(), widening()); },
       .dtypes = {DType::bf16},
       .rounding = unit_roundoff(DType::bf16)},
      {.name = "cpu_bf16_unfused",
       .make = cpu(CpuMatmul::packed, 2, /*fused=*/false),
       .dtypes = {DType::bf16},
       .rounding = unit_roundoff(DType::bf16)},
      {"cpu_packed_unfused", cpu(CpuMatmul::packed, 2, /*fused=*/false), {DType::f32}},
  };
  return backends;
}

}  // namespace stagegpt::test
