// Attention for compute capability 9.0 (kernels/attention_wgmma.cuh). Its kernels are a library of their own,
// because they are compiled for 9.0a, which runs on no other device; a program for other devices has
// ops/wgmma_absent.cpp in its place.
#pragma once

#include <cstdint>
#include <string>

#include "common/backend/op_types.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct AttentionSize;

// Why these kernels cannot run on the device that was opened last; empty if they can.
std::string why_no_wgmma();
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

}  // namespace stagegpt::gpu
