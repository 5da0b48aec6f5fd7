#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// Causal self-attention with n_head heads: qkv (B,T,3C) -> (B,T,C). `dropout` acts on the probabilities.
Var attention(Tape& tape, Var qkv, int n_head, const Dropout& dropout = {});

}  // namespace stagegpt
