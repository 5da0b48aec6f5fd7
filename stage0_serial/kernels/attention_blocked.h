// Causal self-attention in blocks of queries and keys (formulas: attention.h). A thread computes one head of
// one sequence; memory beyond input and output is O(T·HS) per thread. A full T×T matrix of scores would be
// O(T²).
//
// Forward, for each block of queries: small products give the scores for all earlier keys, which are replaced
// by their exponentials; further products multiply these by the values; at last each row of the output is
// divided by the sum of its exponentials. ▓ are the scores of one block, ░ those of the others:
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
//
// bf16: the copies are f32, so that all products and sums are; what is written is rounded. Only the rate of
// reading and writing gains.
#pragma once

#include "stage0_serial/kernels/attention.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

// T: float or Bf16.
template <class T>
void attention_forward(const Parallel& parallel, T* out, float* lse, const T* qkv, const Dropout& dropout,
                       AttentionSize size);
template <class T>
void attention_backward(const Parallel& parallel, GradOut<T> dqkv, const T* dout, const T* out,
                        const float* lse, const T* qkv, const Dropout& dropout, AttentionSize size);

}  // namespace stagegpt::vectorised
