// The reference backend: plain loops in f32 and f64, one thread. The other backends are tested against it.
#pragma once

#include <memory>

#include "common/backend/backend.h"

namespace stagegpt {

std::unique_ptr<Backend> make_naive_backend();

}  // namespace stagegpt
