#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// x · wᵀ + bias (…,O); x (…,I), w (O,I), bias (O) or an empty Var.
Var linear(Tape& tape, Var x, Var w, Var bias);

// An activation between two linear layers. The first computes it, and the backward of the second
// differentiates it, so that it needs no kernel of its own.
struct Activated {
  Var pre;     // (…,O)
  Tensor out;  // activation(pre) (…,O)
  Activation activation;
  Var x, w, bias;  // pre = x · wᵀ + bias
};

// pre = x · wᵀ + bias and its activation; arguments as in linear().
Activated linear_activation(Tape& tape, Var x, Var w, Var bias, Activation activation);
// x.out · wᵀ + bias (…,O), as a function of x.pre; x (…,I), w (O,I), bias (O) or an empty Var. With
// `recompute`, x.out is not kept, but computed again in the backward.
Var activation_linear(Tape& tape, Activated x, Var w, Var bias, bool recompute = false);

}  // namespace stagegpt
