// A checkpoint of a run: rank 0 writes it, and the ranks that own pieces of the weights and moments send it
// these.
#pragma once

#include <string>

#include "common/checkpoint/run_directory.h"
#include "common/data/tokenizers/tokenizer.h"
#include "common/model/language_model.h"
#include "common/optim/adamw.h"
#include "common/parallel/grid.h"
#include "common/train/training_run_config.h"

namespace stagegpt {

// Saves the weights, which are up to date after GradientSync::gather_weights(), the moments and the state.
// `model` is this rank's part if there are several tensor ranks. `directory` is null except on rank 0, which
// returns a line about the checkpoint. A collective call: an error is thrown on all ranks, and earlier
// checkpoints are kept then.
std::string save_checkpoint(RunDirectory* directory, const Grid& grid, Backend& backend,
                            const LanguageModel& model, const AdamW& optimizer, const Tokenizer& tokenizer,
                            const TrainerState& state, const TrainingRunConfig& config);

}  // namespace stagegpt
