// A backend that computes nothing, on memory that is not there: the real graph runs on it to tell what memory
// it would take (memory_stats()).
#pragma once

#include <memory>

#include "common/backend/backend.h"

namespace stagegpt {

// Ops check their arguments and leave it at that. Tensors have addresses and sizes, and nothing behind them:
// touching one is a crash, and planning terabytes takes none. Everything read back to the host is zero.
std::unique_ptr<Backend> make_planning_backend();

}  // namespace stagegpt
