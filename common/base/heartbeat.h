// How a long piece of work on files tells that it goes on.
#pragma once

#include <functional>

namespace stagegpt {

// Called after each part of the work, in the thread that does it. It may throw, which ends the work.
using Heartbeat = std::function<void()>;

}  // namespace stagegpt
