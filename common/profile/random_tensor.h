// Random operands for measuring GEMM.
#pragma once

#include <cstdint>

#include "common/backend/backend.h"

namespace stagegpt {

// f32, uniform in [-0.5, 0.5), with period 65536; each `which` gives other numbers. Equal elements would be
// misleading: some processors compute faster with them.
Tensor random_tensor(Backend& backend, Shape shape, std::uint32_t which = 0);

}  // namespace stagegpt
