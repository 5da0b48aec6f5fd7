// What memory training takes, found without taking it: the real trainer runs the real graph on a backend that
// computes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/model/gpt2.h"
#include "common/train/trainer.h"

namespace stagegpt {

// Bytes of the backend's memory that one rank has in use when a training step uses most, as its allocator
// rounds them: total() is what memory_stats().peak_bytes_in_use will say. Not included: memory of the host
// (tokens, program, libraries), and what kernels and gradient synchronisers keep to themselves.
struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t gradients = 0;
  std::size_t moments = 0;  // Adam's two, and the norm of the gradients
  std::size_t activations =
      0;  // the rest: what forward saves for backward, logits, batch, gradients of these

  // Beside these: what the allocator then keeps for reuse, and would give back rather than fail.
  std::size_t free_blocks = 0;

  std::size_t total() const { return weights + gradients + moments + activations; }
};

// The plan of one of `ranks` ranks that train on sequences of T tokens. For more than 2²⁵ tokens a micro-step
// it is carried on from smaller ones, and so true to a few blocks of the allocator. Throws UserError when the
// batch does not divide among the ranks, and std::runtime_error when the plan exceeds 4 PiB.
// `sync` tells how much of the moments each keeps.
MemoryPlan plan_memory(const Gpt2Config& config, const TrainerConfig& trainer, std::int64_t T, int ranks,
                       const GradientSync& sync);

// The same for a model that writes, once it has read one token: weights, a copy of the matrices where they
// are read in bf16, and the keys and values of a whole context. A longer prompt takes its activations beside.
std::size_t plan_generation(const Gpt2Config& config, DType matrices);

}  // namespace stagegpt
