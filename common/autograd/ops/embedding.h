#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// wte[ids] + wpe[position] (B,T,C); ids i32 (B,T), wte (Vp,C), wpe (P,C).
Var embedding(Tape& tape, const Tensor& ids, Var wte, Var wpe);

}  // namespace stagegpt
