#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// Causal self-attention with n_head heads: qkv (B,T,3C) -> (B,T,C). The scores are scale·q·k; `dropout` acts
// on the probabilities.
Var attention(Tape& tape, Var qkv, int n_head, double scale, const Dropout& dropout = {});

// For inference: attention of T new tokens, the first of which has index `first`, with a cache of keys and
// values (B,P,2C), to which those of the new tokens are added: qkv (B,T,3C) -> (B,T,C).
Var cached_attention(Tape& tape, Var qkv, const Tensor& cache, int n_head, double scale, std::int64_t first);

}  // namespace stagegpt
