// Numbers to measure matrix products on.
#pragma once

#include "common/backend/backend.h"

namespace stagegpt {

// f32, in [-0.5, 0.5), repeating after 65536: some processors take less time where all numbers are alike.
Tensor random_tensor(Backend& backend, Shape shape);

}  // namespace stagegpt
