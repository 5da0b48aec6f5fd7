// Compares the memory that a program will need with what is available.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "common/system/free_memory.h"
#include "common/train/memory_plan.h"

namespace stagegpt {

class CommandLine;

// Where a rank's tensors are.
struct TensorMemory {
  // This rank's share of a device's free memory. Nothing where tensors are in the host's memory.
  std::optional<std::size_t> device_bytes = {};
  bool on_host = true;  // also where the device is emulated
  int host_ranks = 1;   // that share the host's memory, with this one
  // The flag, with its value, that divides AdamW's moments among the ranks; empty where the stage has none.
  std::string divides_moments = {};
};

struct AvailableMemory {
  double bytes = 0;
  std::string where;  // "on this machine, for each of 2 ranks"
};
// The least of what a device, the machine, its control groups and `ulimit -v` leave this rank. Nothing where
// none of them says.
std::optional<AvailableMemory> available_memory(const TensorMemory& memory, const FreeMemory& host);

// What a rank needs for tensors of so many bytes. In the host's memory the blocks that the allocator keeps
// for reuse are added, and an estimate of what the program itself takes (kProcessBytes).
double needed_memory(const TensorMemory& memory, std::size_t tensor_bytes, std::size_t free_blocks = 0);

// A training, and the memory in which it is to be.
struct TrainingMemory : PlannedTraining {
  const TensorMemory& memory;
};
// Bytes that a training run needs.
double needed_memory(const TrainingMemory& training);
// What to do where that is more than is available: flags, and what they save.
std::string advice(const TrainingMemory& training, double available);
// Throws UserError, with both numbers and the advice, where it does not fit.
void require_training_memory(const TrainingMemory& training, const FreeMemory& host);

// Throws UserError where there is no memory for generation with a model whose matrices are f32, bf16 or i8.
// It is the need while a model is loaded: in f32, and then also in the narrower type.
void require_generation_memory(const Gpt2Config& config, DType matrices, const TensorMemory& memory,
                               const FreeMemory& host);
// How many of so many texts there is memory for at once; at least one.
std::int64_t texts_that_fit(std::int64_t texts, const Gpt2Config& config, DType matrices,
                            const TensorMemory& memory, const FreeMemory& host);

// What an evaluation computes at once: `rows` of T tokens each.
struct EvaluationBatch {
  std::int64_t B, T;
  const char* rows = "windows";  // or the endings of a task
  const char* shorter = "";      // the flag that makes T smaller; empty if there is none
};
// Throws UserError where there is no memory for an evaluation, with activations as for Gpt2.
void require_evaluation_memory(const Gpt2Config& config, const EvaluationBatch& batch, DType activations,
                               DType matrices, const TensorMemory& memory, const FreeMemory& host);

// --ignore-memory.
void add_ignore_memory(CommandLine& command_line, bool& ignore);

// The flags of AdamW but for the learning rate.
void add_adamw(CommandLine& command_line, AdamWConfig& adamw);

// --recompute, for recompute_named().
void add_recompute(CommandLine& command_line, std::string& recompute);

// "340.3 GiB", "12.5 MiB".
std::string memory_text(double bytes);

}  // namespace stagegpt
