// out = x + y.
#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// x, y, out: the same shape.
Var add(Tape& tape, Var x, Var y);

}  // namespace stagegpt
