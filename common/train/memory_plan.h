// Predicts the memory of training without allocating it: the trainer runs the model's graph on a backend that
// computes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/model/gpt2.h"
#include "common/train/trainer.h"

namespace stagegpt {

// Peak memory of the backend on one rank during a training step, in bytes, as the allocator rounds them:
// total() is the future memory_stats().peak_bytes_in_use. Not included: host memory (tokens, program,
// libraries), and internal buffers of kernels and communicators.
struct MemoryPlan {
  std::size_t weights = 0;  // with their shadow in bf16, if there is one
  std::size_t gradients = 0;
  std::size_t moments = 0;  // Adam's two, and the norm of the gradients
  // All else: tensors saved for backward, logits, batch, and their gradients.
  std::size_t activations = 0;
  // In addition: free blocks that the allocator keeps for reuse, and releases before it runs out of memory.
  std::size_t free_blocks = 0;

  std::size_t total() const { return weights + gradients + moments + activations; }
};

// A training of one or more ranks.
struct PlannedTraining {
  const Gpt2Config& config;
  TrainerConfig trainer;
  std::int64_t T;                    // tokens in a sequence
  int ranks;                         // data ranks, among which a batch is divided
  const GradientSync& sync;          // determines how the moments are divided
  DType activations = DType::f32;    // as for Gpt2
  int tensor_ranks = 1, stages = 1;  // whose ranks hold one model together

  int all_ranks() const { return ranks * tensor_ranks * stages; }
};

// The plan of a rank of the stage that needs most. For more than 2²⁵ tokens per micro-step it is
// extrapolated from smaller batches, and may be off by a few blocks of the allocator. Throws UserError if the
// batch cannot be divided among the ranks, and std::runtime_error if the plan exceeds 4 PiB.
MemoryPlan plan_memory(const PlannedTraining& training);

// Bytes for generation: weights, a bf16 copy of the matrices if `matrices` is bf16, and the KV cache of full
// contexts. For a single text after one token: a longer prompt needs memory for its activations in addition.
// For several, with the activations of the longest prompt.
std::size_t plan_generation(const Gpt2Config& config, DType matrices, std::int64_t texts = 1);

// Bytes for an evaluation (evaluate.h) in batches of B windows of T tokens.
std::size_t plan_evaluation(const Gpt2Config& config, std::int64_t B, std::int64_t T, DType activations,
                            DType matrices = DType::f32);

}  // namespace stagegpt
