#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// Causal self-attention with n_head heads: qkv (B,T,3C) -> (B,T,C). `dropout` acts on the probabilities.
Var attention(Tape& tape, Var qkv, int n_head, const Dropout& dropout = {});

// Of T new tokens, the first of which is token `first`, over those in a cache (B,P,2C), which they are added
// to: qkv (B,T,3C) -> (B,T,C). For inference.
Var cached_attention(Tape& tape, Var qkv, const Tensor& cache, int n_head, std::int64_t first);

}  // namespace stagegpt
