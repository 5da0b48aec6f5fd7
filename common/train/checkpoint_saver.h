// Saves checkpoints of a run: the ranks that own pieces of the weights and moments bring them to the writers,
// which write a file of each kind; at once, or from a copy while the run goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/run_directory.h"
#include "common/parallel/grid.h"
#include "common/train/piece_copy.h"
#include "common/train/piece_stream.h"

namespace stagegpt {

// A checkpoint that is complete.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::string note;  // a line about it, on rank 0
};

// Every call is collective, and an error is thrown on all ranks; earlier checkpoints are kept then.
class CheckpointSaver {
 public:
  // Arenas of a model, in this order, as in Trainer::arenas().
  static constexpr std::size_t kWeights = 0, kFirstMoment = 1, kSecondMoment = 2, kArenas = 3;

  // `model` is this rank's part if there are several tensor ranks. `writers`: the number of ranks that write,
  // at most all of them. Everything but the grid is borrowed; `timeline` may be null.
  CheckpointSaver(const Grid& grid, Backend& backend, const Gpt2& model, const Tokenizer& tokenizer,
                  int writers, const KeepRule& keep, Timeline* timeline);

  // Saves what the arenas hold. `directory` is null except on rank 0.
  SavedCheckpoint save(RunDirectory* directory, const std::vector<OwnedArena>& arenas,
                       const TrainerState& state);

  // Copies what the arenas hold to the host memory of the writers, whose threads save it afterwards. None
  // may be in progress. `directory` must live until it is complete, and is not to be used before.
  void start(RunDirectory* directory, const std::vector<OwnedArena>& arenas, const TrainerState& state);
  bool in_progress() const { return background_ != nullptr; }
  // Continues the save in progress, if its threads have done their part, without waiting for them. Returns
  // the checkpoint when it is complete.
  std::optional<SavedCheckpoint> advance();
  // Waits until it is complete.
  SavedCheckpoint finish();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // How a part of a save is observed: its progress, and its spans in a timeline.
  struct Watch {
    Heartbeat beat;
    SpanKind kind;
  };
  // What has been written of a checkpoint.
  struct Written {
    std::filesystem::path temporary;
    std::vector<FileEntry> description;  // on rank 0
    TensorEntries own;                   // of this rank's files
    std::vector<TensorEntries> tensors;  // of all
  };
  // A save that threads carry out in phases. Each phase has ended on all ranks before the next one begins.
  struct Background {
    enum class Phase { begin, tensors, commit };

    RunDirectory* directory;
    TrainerState state;
    Time start;
    Phase phase = Phase::begin;
    Written written = {};
    SavedCheckpoint saved = {};
    std::future<void> job = {};  // this rank's part of the phase, if it has one
    std::atomic<std::int64_t> beats = 0;
  };

  // The rank that writes file `file`. The writers are spread over the ranks; the first one is rank 0.
  int rank_of(std::size_t file) const;
  // The number of the file that this rank writes, if it does.
  std::optional<std::size_t> own_file() const;
  // Where the parameters are in the arenas of all ranks.
  PieceLayout layout() const;
  // Which pieces each writer fetches.
  std::vector<Writer> writers() const;
  // The steps of a save. begin() and commit() are for rank 0.
  void begin(RunDirectory& directory, const TrainerState& state, Written& written, const Watch& watch) const;
  TensorEntries write_own(const std::filesystem::path& temporary, const CheckpointValues& values,
                          const Watch& watch) const;
  void gather_entries(Written& written) const;
  SavedCheckpoint commit(RunDirectory& directory, const TrainerState& state, const Written& written,
                         Time start, const Watch& watch) const;

  // Starts this rank's part of the phase in a thread.
  void start_phase();
  // Ends the phase: throws if it has failed on any rank. Starts the next one, or returns the checkpoint.
  std::optional<SavedCheckpoint> next_phase();
  // Returns when this rank's thread has made progress, or has ended.
  void wait_for_progress() const;

  Grid grid_;
  RankGroup& group_;  // of all ranks
  Backend& backend_;
  const Gpt2& model_;
  const Tokenizer& tokenizer_;
  KeepRule keep_;
  Timeline* timeline_;
  ParameterTable table_;             // of the whole model
  std::vector<TableRows> division_;  // among the files
  std::optional<PieceCopy> copy_;    // of this rank's file; kept for the next save
  std::unique_ptr<Background> background_;
};

}  // namespace stagegpt
