// The CUDA backend: f32, on one GPU or, compiled by a host compiler, on the emulator.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/backend/backend.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// Implementations of GEMM: three in f32 (kernels/matmul.cuh), one in bf16 (wgmma.h), the library
// (gemm.h).
enum class GpuMatmul { naive, tiled, vectorised, wgmma, cublaslt };
inline const std::vector<std::string> kGpuMatmulNames = {"naive", "tiled", "vectorised", "wgmma", "cublaslt"};

// Whether the library computes products, or those that wgmma leaves to it.
constexpr bool uses_library(GpuMatmul matmul) {
  return matmul == GpuMatmul::cublaslt || matmul == GpuMatmul::wgmma;
}

// Implementations of attention (kernels/attention.cuh). Heads that are too wide for flash are materialised.
// flash: in bf16, flash_wgmma where the device and the attention allow it, otherwise flash_mma.
enum class GpuAttention { materialised, flash, flash_mma, flash_wgmma };
inline const std::vector<std::string> kGpuAttentionNames = {"materialised", "flash", "flash-mma",
                                                            "flash-wgmma"};

struct CudaOptions {
  GpuMatmul matmul = GpuMatmul::cublaslt;
  GpuAttention attention = GpuAttention::flash;
  Precision precision = Precision::f32;
  std::shared_ptr<GemmPlans> plans = nullptr;  // of products by the library
  bool graph = false;                          // records repeated work
  bool must_graph = false;                     // and some of a training step's
};

class CudaBackend : public Backend, protected Kernels {
 public:
  explicit CudaBackend(std::unique_ptr<MemorySource> memory) : Backend(std::move(memory), this) {}
  // The stream on which all ops are launched.
  virtual StreamHandle stream() const = 0;
  std::optional<DeviceWork> device_work() const override { return device_counts.work(); }
};

// Uses the device that was opened last (runtime.h), and creates a stream.
std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options);

}  // namespace stagegpt::gpu
