#include "stage1_mpi/mpi_flags.h"

#include "common/comm/agreement.h"
#include "stage1_mpi/gradient_syncs.h"

namespace stagegpt {
namespace {

// In the order of CommAlgorithm.
const std::vector<std::string> kAlgorithms = {"ring", "mpi"};
constexpr std::int64_t kMostRanks = 1'000'000;

}  // namespace

void MpiFlags::add(CommandLine& command_line) {
  command_line.choice("--comm", comm_, gradient_sync_names(),
                      "how the gradients of the ranks are combined; --reproducible uses a method of its own");
  command_line.choice("--comm-algorithm", algorithm_, kAlgorithms,
                      "implementation of all-reduce and its parts: a ring, or the MPI library");
  command_line.real("--comm-latency", latency_, kNotNegative,
                    "delay messages as a network of this latency does, in microseconds");
  command_line.real("--comm-bandwidth", bandwidth_, kNotNegative,
                    "delay messages as a network of so many Gb/s per rank does (0: no delay)");
  command_line.real("--watchdog-seconds", watchdog_seconds_, kNotNegative,
                    "end all ranks when one hangs for this long (0: never)");
}

std::vector<std::string> MpiFlags::add_grid(CommandLine& command_line) {
  constexpr const char *kTensor = "--tensor-parallel", *kPipeline = "--pipeline-parallel";
  command_line.integer(
      kTensor, tensor_ranks_, 1, kMostRanks,
      "neighbouring ranks that hold one model together, each a part of every layer; the others "
      "divide the batch");
  command_line.integer(kPipeline, stages_, 1, kMostRanks,
                       "stages of a pipeline: groups of ranks that each hold some of the model's layers, and "
                       "compute the micro-steps of --grad-accumulation one after the other");
  return {kTensor, kPipeline};
}

std::optional<Grid> MpiFlags::make_grid(Communicator& world) const {
  if (tensor_ranks_ * stages_ == 1) return std::nullopt;
  return Grid(world, tensor_ranks(), stages());
}

std::string MpiFlags::description() const {
  const std::string delay = stagegpt::description(network());
  return concat(tensor_ranks_ == 1 ? "" : concat(", ", tensor_ranks_, " tensor ranks"),
                stages_ == 1 ? "" : concat(", ", stages_, " stages"), delay.empty() ? "" : "; ", delay);
}

CommAlgorithm MpiFlags::algorithm() const { return chosen<CommAlgorithm>(kAlgorithms, algorithm_); }

Network MpiFlags::network() const {
  return {.latency = latency_ * 1e-6, .seconds_per_byte = bandwidth_ > 0 ? 8e-9 / bandwidth_ : 0};
}

}  // namespace stagegpt
