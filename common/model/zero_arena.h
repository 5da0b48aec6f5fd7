// Allocation of arenas.
#pragma once

#include <cstdint>

#include "common/backend/backend.h"

namespace stagegpt {

// An arena of `numel` elements, all zero. Filling a large one takes seconds, because the system provides each
// page of memory when it is first written. Stop signals are therefore checked after each piece: throws
// Stopped.
Tensor zero_arena(Backend& backend, DType dtype, std::int64_t numel);

}  // namespace stagegpt
