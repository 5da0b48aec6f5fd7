// Causal self-attention in blocks of queries and keys (formulas: attention.h). A thread computes one head of
// one sequence; memory beyond input and output is O(T·HS) per thread. A full T×T matrix of scores would be
// O(T²).
//
// Forward, for each block of queries: small products give the scores for all earlier keys, the softmax is
// computed in place, and further products multiply by the values.
//
// clang-format off
//            forward: one block of queries     backward: one block of keys
//                    keys →                            keys →
//                  ░                                 ░
//        queries   ░░                                ░░
//           ↓      ▓▓▓                               ░░▓
//                  ▓▓▓▓                              ░░▓▓
//                  ░░░░░                             ░░▓▓░
//                  ░░░░░░                            ░░▓▓░░
// clang-format on
//
// Only what lies on or below the diagonal is computed, to within a register tile.
//
// Backward, for each block of keys: for all later blocks of queries the probabilities are computed again,
// from lse. The gradients of the keys and values stay in a cache meanwhile; those of the queries are
// accumulated.
//
// Rows of one head lie 3C elements apart. What is read many times is first copied without gaps; keys, the
// right factor of the scores, into panels as wide as a register tile.
#pragma once

#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

void attention_forward(const Parallel& parallel, float* out, float* lse, const float* qkv,
                       const Dropout& dropout, AttentionSize size);
void attention_backward(const Parallel& parallel, GradOut<float> dqkv, const float* dout, const float* out,
                        const float* lse, const float* qkv, const Dropout& dropout, AttentionSize size);

}  // namespace stagegpt::vectorised
