#pragma once

#include <utility>

#include "common/autograd/tape.h"

namespace stagegpt {

// Normalises each row of x (…,C) to mean 0 and variance 1, then scales by w (C) and shifts by bias (C).
Var layernorm(Tape& tape, Var x, Var w, Var bias, double eps);

// Adds a branch to the residual stream and normalises the sum for the next branch, with one kernel. Returns
// x + residual (…,C) and its layernorm (…,C).
std::pair<Var, Var> residual_layernorm(Tape& tape, Var x, Var residual, Var w, Var bias, double eps);

}  // namespace stagegpt
