// The weights of all ranks begin alike.
#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Draws random weights (Parameters::initialize): each rank a slice, on its threads, and then every rank gets
// all. The bits are those of one process. Throws as broadcast_weights() does, and Stopped when a signal
// has come.
void draw_weights(Communicator& communicator, Backend& backend, Parameters& parameters, std::uint64_t seed,
                  int threads);

// Makes every rank's weights those of rank 0, and compares them as require_same_weights() does.
void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters);

}  // namespace stagegpt
