// The command-line flags of a stage with several processes, and their values.
#pragma once

#include <string>

#include "common/app/command_line.h"
#include "stage1_mpi/communication.h"

namespace stagegpt {

class MpiFlags {
 public:
  // Divides AdamW's moments among the ranks.
  static constexpr const char* kDividesMoments = "--comm zero1";

  void add(CommandLine& command_line);

  const std::string& gradient_sync() const { return comm_; }
  // Throws AgreedUserError if flags contradict each other.
  Communication communication() const;
  double watchdog_seconds() const { return watchdog_seconds_; }

 private:
  std::string comm_ = "zero1", algorithm_ = "ring";
  std::int64_t ranks_per_node_ = 0;
  double watchdog_seconds_ = kDefaultWatchdogSeconds;
  double latency_ = 0;    // microseconds
  double bandwidth_ = 0;  // Gb/s
};

}  // namespace stagegpt
