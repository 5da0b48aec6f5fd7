// The CPU backend: vectorised, threaded kernels in f32, and for activations in bf16 with sums in f32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "stage0_serial/host_memory.h"
#include "stage0_serial/kernels/packed_kernels.h"

namespace stagegpt {

// packed_bf16 rounds the factors to bf16, but for single tokens of texts, and adds in f32.
enum class CpuMatmul { naive, tiled, packed, packed_bf16, blas };
inline const std::vector<std::string> kCpuMatmulNames = {"naive", "tiled", "packed", "packed-bf16", "blas"};

// Activations may be bf16; their products are those of `bf16_kernels`, whatever `matmul` is. Throws
// std::runtime_error if `matmul` is blas and OpenBLAS cannot be loaded.
std::unique_ptr<Backend> make_cpu_backend(
    int threads, CpuMatmul matmul = CpuMatmul::packed,
    std::unique_ptr<MemorySource> memory = std::make_unique<HostMemory>(),
    const PackedKernels& bf16_kernels = packed_kernels(Factors::bf16));

}  // namespace stagegpt
