// The CUDA backend: f32 on one GPU or, built by a host compiler, on the emulator.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "common/backend/backend.h"
#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// Rungs of the matrix product: three by hand (kernels/matmul.cuh), and the library's.
enum class GpuMatmul { naive, tiled, vectorised, cublaslt };

std::optional<GpuMatmul> gpu_matmul_named(std::string_view name);

struct CudaOptions {
  GpuMatmul matmul = GpuMatmul::cublaslt;
  Precision precision = Precision::f32;  // of the library's products
};

class CudaBackend : public Backend, protected Kernels {
 public:
  explicit CudaBackend(std::unique_ptr<MemorySource> memory) : Backend(std::move(memory), this) {}
  // Where its work waits its turn.
  virtual StreamHandle stream() const = 0;
};

// On the device that was opened last (runtime.h), with a stream of its own.
std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options);

}  // namespace stagegpt::gpu
