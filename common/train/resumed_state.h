// The state of a training in a checkpoint.
#pragma once

#include <filesystem>

#include "common/checkpoint/trainer_state.h"
#include "common/data/corpus.h"
#include "common/train/trainer_config.h"

namespace stagegpt {

// Reads it. Throws UserError, naming the flag, unless a run with these settings, on these tokens, can
// continue from it. Prints a note if the validation tokens are others; then the best loss is no number, and
// the next one is better.
TrainerState read_resumed_state(const std::filesystem::path& checkpoint, const TrainerConfig& config,
                                const Corpus& corpus);

}  // namespace stagegpt
