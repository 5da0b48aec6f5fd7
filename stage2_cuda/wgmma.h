// Attention and GEMM in bf16 for compute capability 9.0 (kernels/attention_wgmma.cuh,
// kernels/matmul_wgmma.cuh). Their kernels are a library of their own, because they are compiled for 9.0a,
// which runs on no other device; a program for other devices has ops/wgmma_absent.cpp in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/backend/op_types.h"
#include "stage2_cuda/gemm.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct AttentionSize;

// Why these kernels cannot run on the device that was opened last; empty if they can.
std::string why_no_wgmma();

// ---- Attention ----

// Whether they compute such an attention, in bf16: heads of a multiple of eight channels, at most 128, with a
// positive scale.
bool wgmma_computes(const AttentionSize& size);

// Shapes and formulas are those of kernels/attention.cuh; all tensors are aligned to 16 bytes.
void wgmma_attention_forward(StreamHandle stream, Bf16* out, float* lse, const Bf16* qkv,
                             const AttentionSize& size, const Dropout& dropout);
// `scratch` has wgmma_scratch() elements.
std::int64_t wgmma_scratch(const AttentionSize& size);
void wgmma_attention_backward(StreamHandle stream, Bf16* dqkv, bool accumulate, const Bf16* dout,
                              const Bf16* out, const float* lse, const Bf16* qkv, const AttentionSize& size,
                              const Dropout& dropout, float* scratch);

// ---- GEMM ----

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
