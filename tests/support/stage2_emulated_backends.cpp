#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/emulation/settings.h"
#include "tests/support/backends.h"

namespace stagegpt::test {
namespace {

using gpu::GpuMatmul;
using gpu::emulation::Order;

std::function<std::unique_ptr<Backend>()> emulated(gpu::emulation::ThreadOrder order, GpuMatmul matmul,
                                                   bool fused = true, bool late = false) {
  return [=] {
    gpu::emulation::set_late_streams(late);
    gpu::emulation::set_thread_order(order);
    gpu::open_device(0);
    std::unique_ptr<Backend> backend = gpu::make_cuda_backend({.matmul = matmul});
    backend->set_fused(fused);
    return backend;
  };
}

}  // namespace

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> backends = {
      {"emulated_forward", emulated({Order::forward}, GpuMatmul::cublaslt), {DType::f32}},
      {"emulated_reverse", emulated({Order::reverse}, GpuMatmul::cublaslt), {DType::f32}},
      {"emulated_random", emulated({Order::random, 1}, GpuMatmul::cublaslt), {DType::f32}},
      {"emulated_naive", emulated({Order::forward}, GpuMatmul::naive), {DType::f32}},
      {"emulated_tiled_forward", emulated({Order::forward}, GpuMatmul::tiled), {DType::f32}, /*slow=*/true},
      {"emulated_tiled_random", emulated({Order::random, 2}, GpuMatmul::tiled), {DType::f32}, /*slow=*/true},
      {"emulated_vectorised_reverse",
       emulated({Order::reverse}, GpuMatmul::vectorised),
       {DType::f32},
       /*slow=*/true},
      {"emulated_vectorised_random",
       emulated({Order::random, 3}, GpuMatmul::vectorised),
       {DType::f32},
       /*slow=*/true},
      {"emulated_unfused", emulated({Order::forward}, GpuMatmul::cublaslt, /*fused=*/false), {DType::f32}},
      {"emulated_late",
       emulated({Order::forward}, GpuMatmul::cublaslt, /*fused=*/true, /*late=*/true),
       {DType::f32}},
  };
  return backends;
}

}  // namespace stagegpt::test
