// How long-running work on files reports that it makes progress.
#pragma once

#include <functional>

namespace stagegpt {

// Called after each part of the work, in the thread that does the work. An exception that it throws ends the
// work.
using Heartbeat = std::function<void()>;

}  // namespace stagegpt
