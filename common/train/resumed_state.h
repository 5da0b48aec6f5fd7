// The state of a training in a checkpoint.
#pragma once

#include <filesystem>

#include "common/checkpoint/trainer_state.h"
#include "common/data/token_sequence.h"
#include "common/train/trainer_config.h"

namespace stagegpt {

// Reads it. Throws UserError, naming the flag, unless a run with these settings, on these tokens, can
// continue from it.
TrainerState read_resumed_state(const std::filesystem::path& checkpoint, const TrainerConfig& config,
                                const TokenSequence& tokens, const TokenIdentity& identity);

}  // namespace stagegpt
