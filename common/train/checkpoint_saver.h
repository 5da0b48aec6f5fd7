// Saves checkpoints of a run: the ranks that own pieces of the weights and moments bring them to the writers,
// which write a file of each kind.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/comm/rank_group.h"
#include "common/train/piece_stream.h"

namespace stagegpt {

class CheckpointSaver {
 public:
  // `writers`: the number of ranks that write, at most all of them. Everything is borrowed; `timeline` may be
  // null.
  CheckpointSaver(RankGroup& group, Backend& backend, const Gpt2& model, const Tokenizer& tokenizer,
                  int writers, Timeline* timeline);

  // Saves what the arenas hold: the weights, m and v. Returns a line about it. A collective call; an error is
  // thrown on all ranks, and earlier checkpoints are kept. `directory` is null except on rank 0.
  // `before` is called there first.
  std::string save(RunDirectory* directory, const std::vector<OwnedArena>& arenas, const TrainerState& state,
                   const KeepRule& keep, const std::function<void()>& before);

 private:
  // The rank that writes file `file`. The writers are spread over the ranks; the first one is rank 0.
  int rank_of(std::size_t file) const;
  // Which pieces each writer fetches.
  std::vector<Writer> writers() const;
  // Writes this rank's files, if it is a writer. Returns the entries of all files.
  std::vector<TensorEntries> write(const std::filesystem::path& directory,
                                   const std::vector<OwnedArena>& arenas);
  std::vector<TensorEntries> gathered(const TensorEntries& own) const;

  RankGroup& group_;
  Backend& backend_;
  const Gpt2& model_;
  const Tokenizer& tokenizer_;
  Timeline* timeline_;
  std::vector<TableRows> division_;  // among the files
};

}  // namespace stagegpt
