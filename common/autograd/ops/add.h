// out = x + y.
#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// The name on the tape, by which watches know it.
inline constexpr std::string_view kAdd = "add";

// x, y, out: the same shape.
Var add(Tape& tape, Var x, Var y);

}  // namespace stagegpt
