// A communicator that records the messages of another one, and the phases and messages of its group.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// Returns `communicator` itself if `timeline` is null. The spans of a part of the ranks, from split(), say
// how many they are: "all_reduce among 2 ranks".
std::unique_ptr<Communicator> recorded(Timeline* timeline, std::unique_ptr<Communicator> communicator);

}  // namespace stagegpt
