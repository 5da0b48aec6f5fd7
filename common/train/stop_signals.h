// Signals that ask a run to stop after its step, with a checkpoint: SIGUSR1 and SIGTERM, as schedulers send
// them, SIGHUP of a terminal that is gone, and SIGINT, Ctrl-C.
#pragma once

#include <csignal>
#include <initializer_list>
#include <vector>

namespace stagegpt {

// While it lives the signals are noted instead of ending the process, and for good once one has come: what is
// left to do then is to save and to exit. A second SIGINT ends the process at once.
class StopSignals {
 public:
  explicit StopSignals(std::initializer_list<int> signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one of them has come, to any object of this class.
  static bool requested();

 private:
  struct Replaced {
    int signal;
    struct sigaction before;
  };
  std::vector<Replaced> replaced_;
};

}  // namespace stagegpt
