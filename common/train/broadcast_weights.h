// The weights of all ranks begin alike.
#pragma once

#include "common/comm/communicator.h"
#include "common/model/parameters.h"

namespace stagegpt {

// Makes every rank's weights those of rank 0, and compares their hashes: every rank throws AgreedFailure,
// naming the first that has others.
void broadcast_weights(Communicator& communicator, Backend& backend, Parameters& parameters);

}  // namespace stagegpt
