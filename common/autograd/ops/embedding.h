#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// wte[ids] + wpe[position] (B,T,C); ids i32 (B,T), wte (Vp,C), wpe (P,C). Without wpe, an empty Var, it is
// wte[ids]. The id Vp has no row in wte: it counts as zero.
Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe);

}  // namespace stagegpt
