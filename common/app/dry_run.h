// --dry-run: what a run would take.
#pragma once

#include "common/model/gpt2.h"
#include "common/train/trainer.h"

namespace stagegpt {

// Prints parameters, FLOPs, and memory of each rank by kind on standard output, as a table or as JSON.
void print_plan(const Gpt2Config& config, const TrainerConfig& trainer, int ranks, const GradientSync& sync,
                bool json);

}  // namespace stagegpt
