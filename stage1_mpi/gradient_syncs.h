// The ladder of gradient synchronisation, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"
#include "common/comm/communicator.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

// From the simplest on.
const std::vector<std::string>& gradient_sync_names();

// Both are borrowed. The name is one of the above.
std::unique_ptr<GradientSync> make_gradient_sync(const std::string& name, Communicator& communicator,
                                                 Backend& backend);

}  // namespace stagegpt
