// Causal self-attention in blocks of queries (formulas: attention.h). A thread owns one head of one sequence
// and goes through its queries in blocks: scores of a block against all earlier keys are one small matrix
// product, then the softmax in place, then another product with the values. Memory beyond input and output is
// O(T·HS) a thread (blocks of scores, transposed keys and values), where a materialised T×T would be O(T²) a
// head.
//
// The backward computes the probabilities of a block again from lse and adds to dk and dv block by block.
#pragma once

#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

void attention_forward(const Parallel& parallel, float* out, float* lse, const float* qkv,
                       const Dropout& dropout, AttentionSize size);
void attention_backward(const Parallel& parallel, GradOut<float> dqkv, const float* dout, const float* out,
                        const float* lse, const float* qkv, const Dropout& dropout, AttentionSize size);

}  // namespace stagegpt::vectorised
