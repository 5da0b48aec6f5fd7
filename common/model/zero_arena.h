// Arenas begin as zeros.
#pragma once

#include <cstdint>

#include "common/backend/backend.h"

namespace stagegpt {

// An arena of `numel` elements, all zero. It is filled in pieces, since a large one takes seconds: the system
// supplies each page of memory when it is first written. Throws Stopped when a signal has come meanwhile.
Tensor zero_arena(Backend& backend, DType dtype, std::int64_t numel);

}  // namespace stagegpt
