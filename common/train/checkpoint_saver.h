// Saves checkpoints of a run: rank 0 writes them, and the ranks that own pieces of the weights and moments
// send it these.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/piece_stream.h"
#include "common/checkpoint/run_directory.h"
#include "common/parallel/grid.h"

namespace stagegpt {

class CheckpointSaver {
 public:
  // `model` is this rank's part if there are several tensor ranks. Everything but the grid is borrowed;
  // `timeline` may be null.
  CheckpointSaver(const Grid& grid, Backend& backend, const LanguageModel& model, const Tokenizer& tokenizer,
                  const KeepRule& keep, Timeline* timeline);

  // Saves what the arenas of checkpoint_arenas() hold. `directory` is null except on rank 0, which returns a
  // line about the checkpoint. A collective call: an error is thrown on all ranks, and earlier checkpoints
  // are kept then.
  std::string save(RunDirectory* directory, const std::vector<OwnedArena>& arenas, const TrainerState& state);

 private:
  Grid grid_;
  RankGroup& group_;  // of all ranks
  Backend& backend_;
  const LanguageModel& model_;
  const Tokenizer& tokenizer_;
  KeepRule keep_;
  Timeline* timeline_;
};

}  // namespace stagegpt
