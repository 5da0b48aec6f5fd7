#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// x with elements dropped; x itself if dropout is off.
Var dropout(Tape& tape, Var x, const Dropout& dropout);

}  // namespace stagegpt
