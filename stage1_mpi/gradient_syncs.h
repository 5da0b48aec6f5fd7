// The implementations of gradient synchronisation, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

// In order, the simplest first.
const std::vector<std::string>& gradient_sync_names();

// `name` must be one of gradient_sync_names(). Communicator and backend are borrowed.
std::unique_ptr<GradientSync> make_gradient_sync(const std::string& name, Communicator& communicator,
                                                 Backend& backend);

}  // namespace stagegpt
