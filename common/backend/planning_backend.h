// A backend that computes nothing and has no memory. A model runs on it to find out how much memory it would
// use: memory_stats() counts what is allocated.
#pragma once

#include <memory>

#include "common/backend/backend.h"

namespace stagegpt {

// Ops check their arguments and do nothing else. Tensors have addresses and sizes, but no memory: an access
// to an element crashes, and a tensor of terabytes costs nothing. Everything copied to the host is zero.
std::unique_ptr<Backend> make_planning_backend();

}  // namespace stagegpt
