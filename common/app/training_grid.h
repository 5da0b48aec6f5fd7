// A training on the grid of a stage's ranks, for stageN_train and stageN_bench: what is not possible there is
// refused before memory is allocated.
#pragma once

#include "common/app/memory_check.h"
#include "common/app/stage.h"

namespace stagegpt {

// Throws UserError if a flag is given that needs the whole model on each rank, and none has it.
void refuse_on_grid(const Stage& stage, bool given, const char* flag);

// Throws UserError if a step cannot be divided among the data ranks, but not if the ranks do not form a grid:
// Grid says so.
void require_divisible_step(Stage& stage, const TrainerConfig& config);

// Throws AgreedUserError if a model cannot be divided among the ranks that hold it. A collective call.
void require_divisible_model(const Machine& machine, const Gpt2Config& config);

// With few micro-steps, the stages of a pipeline wait for each other most of the time. Prints a line then.
void warn_of_few_micro_steps(const Machine& machine, const TrainerConfig& config);

// The memory that a rank needs. Borrows the configuration and the machine.
TrainingMemory training_memory(const Machine& machine, const Gpt2Config& config, const TrainerConfig& trainer,
                               std::int64_t T);

}  // namespace stagegpt
