// Tests of work that a signal stops.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>

#include "common/system/stop_signals.h"

namespace stagegpt::test {

// Runs `body` after a stop signal, then exits: with code 75 if `body` was stopped, else 0. For EXPECT_EXIT,
// because a stop signal cannot be reset.
[[noreturn]] inline void exit_as_stopped(const std::function<void()>& body) {
  const StopSignals signals({SIGTERM});
  raise(SIGTERM);
  try {
    body();
  } catch (const Stopped&) {
    std::_Exit(kExitStopped);
  }
  std::_Exit(0);
}

}  // namespace stagegpt::test
