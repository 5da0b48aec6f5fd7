// Work that a signal is to stop.
#pragma once

#include <csignal>
#include <cstdlib>
#include <functional>

#include "common/system/stop_signals.h"

namespace stagegpt::test {

// Runs `body` after a stop signal has come, and ends the process: with exit code 75 if it was given up, else
// 0. For EXPECT_EXIT, since a signal is noted for good.
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
