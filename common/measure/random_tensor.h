// Random operands for measuring GEMM.
#pragma once

#include "common/backend/backend.h"

namespace stagegpt {

// f32, uniform in [-0.5, 0.5), with period 65536. Equal elements would be misleading: some processors compute
// faster with them.
Tensor random_tensor(Backend& backend, Shape shape);

}  // namespace stagegpt
