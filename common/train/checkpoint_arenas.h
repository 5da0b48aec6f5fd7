// What a rank has of the tensors of a checkpoint. placed_in_parts() (whole_values.h) says where the
// parameters are in these arenas.
#pragma once

#include <filesystem>
#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/piece_stream.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/corpus.h"
#include "common/model/language_model.h"
#include "common/optim/adamw.h"
#include "common/parallel/grid.h"
#include "common/train/trainer_config.h"

namespace stagegpt {

// The weights, which are up to date after GradientSync::gather_weights(), and the moments m and v.
std::vector<OwnedArena> checkpoint_arenas(const Grid& grid, const LanguageModel& model,
                                          const AdamW& optimizer);

// The gradients of the last step, reduced over all ranks and before clipping.
OwnedArena gradient_arena(const Grid& grid, const LanguageModel& model, const AdamW& optimizer);

// Copies moments of the whole model into this rank's parts. Each rank reads only these; if all data ranks
// have the same, each reads a slice, and gets the others' from them. Overwrites the gradients with zeros. A
// collective call; an error of `values` on one rank is thrown on all.
void load_moments(Backend& backend, const Grid& grid, const LanguageModel& model, const AdamW& optimizer,
                  const MomentValues& values);

// Reads it. Throws UserError, naming the flag, unless a run with these settings, on these tokens, can
// continue from it. Prints a note if the validation tokens are others; then the best loss is no number, and
// the next one is better.
TrainerState read_resumed_state(const std::filesystem::path& checkpoint, const TrainerConfig& config,
                                const Corpus& corpus);

}  // namespace stagegpt
