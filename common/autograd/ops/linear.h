#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// activation(x · wᵀ + bias) (…,O); x (…,I), w (O,I), bias (O) or an empty Var.
Var linear(Tape& tape, Var x, Var w, Var bias, Activation activation = Activation::none);

}  // namespace stagegpt
