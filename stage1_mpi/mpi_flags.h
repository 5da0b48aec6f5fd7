// The command-line flags of a stage with several processes, and their values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/app/command_line.h"
#include "common/parallel/grid.h"
#include "stage1_mpi/mpi_communicator.h"

namespace stagegpt {

class MpiFlags {
 public:
  // Divides AdamW's moments among the ranks.
  static constexpr const char* kDividesMoments = "--comm zero1";

  void add(CommandLine& command_line);
  // --tensor-parallel, --pipeline-parallel. Returns these names.
  std::vector<std::string> add_grid(CommandLine& command_line);

  const std::string& gradient_sync() const { return comm_; }
  CommAlgorithm algorithm() const;
  Network network() const;
  int tensor_ranks() const { return static_cast<int>(tensor_ranks_); }
  int stages() const { return static_cast<int>(stages_); }
  // Divides the ranks as these flags say; nothing if all are data ranks. Throws AgreedUserError if they do
  // not divide. Collective call.
  std::optional<Grid> make_grid(Communicator& world) const;
  // ", 2 tensor ranks, 4 stages; network delayed: 100 µs"; empty if there is nothing to say.
  std::string description() const;
  double watchdog_seconds() const { return watchdog_seconds_; }

 private:
  std::string comm_ = "zero1", algorithm_ = "ring";
  std::int64_t tensor_ranks_ = 1, stages_ = 1;
  double watchdog_seconds_ = kDefaultWatchdogSeconds;
  double latency_ = 0;    // microseconds
  double bandwidth_ = 0;  // Gb/s
};

}  // namespace stagegpt
