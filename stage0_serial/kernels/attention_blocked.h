// Causal self-attention in blocks of queries (formulas: attention.h). A thread computes one head of one
// sequence. For each block of queries, a small GEMM gives the scores for all earlier keys, the softmax is
// computed in place, and a second GEMM multiplies by the values. Memory beyond input and output is O(T·HS)
// per thread (a block of scores, transposed keys and values); a full T×T matrix of scores would be O(T²) per
// head.
//
// The backward recomputes the probabilities of a block from lse, and accumulates dk and dv block by block.
#pragma once

#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

void attention_forward(const Parallel& parallel, float* out, float* lse, const float* qkv,
                       const Dropout& dropout, AttentionSize size);
void attention_backward(const Parallel& parallel, GradOut<float> dqkv, const float* dout, const float* out,
                        const float* lse, const float* qkv, const Dropout& dropout, AttentionSize size);

}  // namespace stagegpt::vectorised
