// Gives all ranks the same initial weights.
#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Draws random weights (Parameters::initialize): each rank draws a slice, then the ranks exchange their
// slices. The bits are those of one process. Throws as broadcast_weights() does, and Stopped if a signal has
// been received.
void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads);

// Broadcasts the weights of rank 0, then compares the weights of all ranks with require_same_weights().
void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters);

}  // namespace stagegpt
