// What a rank has of the tensors of a checkpoint. placed_in_parts() (whole_values.h) says where the
// parameters are in these arenas.
#pragma once

#include <vector>

#include "common/checkpoint/parameter_values.h"
#include "common/checkpoint/piece_stream.h"
#include "common/model/language_model.h"
#include "common/optim/adamw.h"
#include "common/parallel/grid.h"

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

}  // namespace stagegpt
