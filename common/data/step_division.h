// How the samples of a step are divided into sub-batches, one for each forward and backward pass.
#pragma once

#include <cstdint>

namespace stagegpt {

// The number of sub-batches of a batch with --reproducible, on any number of ranks: a power of two. More
// allow more ranks, fewer are quicker.
inline constexpr std::int64_t kReproducibleSubBatches = 8, kMostSubBatches = 64;

// A step has `micro_steps` batches of `batch_size` samples. Each batch is divided into `sub_batches` equal
// parts. This rank computes `owned_sub_batches` of them, from `first_sub_batch` on.
struct StepDivision {
  std::int64_t batch_size = 1;
  std::int64_t micro_steps = 1;
  std::int64_t sub_batches = 1, first_sub_batch = 0, owned_sub_batches = 1;

  std::int64_t samples() const { return batch_size * micro_steps; }         // of a step, over all ranks
  std::int64_t sub_batch_size() const { return batch_size / sub_batches; }  // in samples
  std::int64_t passes() const { return owned_sub_batches * micro_steps; }   // of this rank in a step
  std::int64_t all_passes() const { return sub_batches * micro_steps; }     // of all ranks
};

// `sub_batches` of a batch, for --reproducible; 0: one for each rank. Throws UserError if they are no power
// of two up to kMostSubBatches or not divisible by the ranks, or the batch by the sub-batches, or if a step
// has more than 2³¹-1 samples.
StepDivision divide_step(std::int64_t batch_size, std::int64_t micro_steps, int rank, int ranks,
                         std::int64_t sub_batches);

}  // namespace stagegpt
