// GEMM in bf16 for compute capability 9.0 (kernels/matmul_wgmma.cuh), in the library of attention_wgmma.h,
// which also says why a device cannot run it.
#pragma once

#include <memory>

#include "stage2_cuda/gemm.h"

namespace stagegpt::gpu {

// The persistent version computes forwards and gradients of activations in bf16, with their epilogues, and
// gradients of weights in f32, without row sums. `library` computes what it cannot: other products, and
// operands with rows of other than a multiple of eight elements (four in the result), with gaps, or not
// aligned to 16 bytes.
std::unique_ptr<Gemm> make_wgmma_gemm(std::unique_ptr<Gemm> library);

// The versions of the ladder: c (M,N) = a (M,K) · b (K,N) + bias (N), row-major without gaps, aligned to 16
// bytes; N and K are multiples of eight.
void matmul_v7(StreamHandle stream, const ProductOf<Bf16, Bf16>& product);
void matmul_v8(StreamHandle stream, const ProductOf<Bf16, Bf16>& product);
void matmul_v9(StreamHandle stream, const ProductOf<Bf16, Bf16>& product);

}  // namespace stagegpt::gpu
