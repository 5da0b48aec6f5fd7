#include "stage1_mpi/mpi_flags.h"

#include "stage1_mpi/gradient_syncs.h"

namespace stagegpt {

void MpiFlags::add(CommandLine& command_line) {
  command_line.choice("--comm", comm_, gradient_sync_names(),
                      "how the gradients of the ranks are combined; --reproducible uses a method of its own");
  command_line.choice(
      "--comm-algorithm", algorithm_, {"ring", "mpi"},
      "implementation of all-reduce and its parts: the ring of this project, or the MPI library");
  command_line.real("--comm-latency", latency_, kNotNegative,
                    "delay messages as a network of this latency does, in microseconds");
  command_line.real("--comm-bandwidth", bandwidth_, kNotNegative,
                    "delay messages as a network of so many Gb/s per rank does (0: no delay)");
  command_line.real("--watchdog-seconds", watchdog_seconds_, kNotNegative,
                    "end all ranks when one hangs for this long (0: never)");
}

CommAlgorithm MpiFlags::algorithm() const {
  return algorithm_ == "ring" ? CommAlgorithm::ring : CommAlgorithm::mpi;
}

Network MpiFlags::network() const {
  return {.latency = latency_ * 1e-6, .seconds_per_byte = bandwidth_ > 0 ? 8e-9 / bandwidth_ : 0};
}

}  // namespace stagegpt
