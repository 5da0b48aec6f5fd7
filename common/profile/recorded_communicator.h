// A communicator that records the messages of another one, and the phases and messages of its group.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// Returns `communicator` itself if `timeline` is null. If it connects only a part of the ranks, `level` says
// which, and the spans of its tensors are named after it: "all_reduce across nodes".
std::unique_ptr<Communicator> recorded(Timeline* timeline, std::unique_ptr<Communicator> communicator,
                                       const std::string& level = "");

}  // namespace stagegpt
