#include "common/train/checkpoint_saver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "common/base/seconds_since.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

std::string checkpoint_note(const fs::path& path, const std::vector<FileEntry>& files, double seconds) {
  double megabytes = 0;
  for (const FileEntry& file : files) megabytes += static_cast<double>(file.bytes) / 1e6;
  char text[64];
  std::snprintf(text, sizeof text, " (%.1f MB, %.2f s)", megabytes, seconds);
  return "checkpoint: " + path.string() + text;
}

// An entry without its name, as ranks send it.
struct SentEntry {
  std::uint64_t bytes = 0;
  std::array<char, 32> xxh3_128 = {};
};

SentEntry sent(const FileEntry& entry) {
  SentEntry sent{entry.bytes, {}};
  std::ranges::copy(entry.xxh3_128, sent.xxh3_128.begin());
  return sent;
}

FileEntry received(const std::string& name, const SentEntry& entry) {
  return {name, entry.bytes, std::string(entry.xxh3_128.begin(), entry.xxh3_128.end())};
}

}  // namespace

CheckpointSaver::CheckpointSaver(const Grid& grid, Backend& backend, const Gpt2& model,
                                 const Tokenizer& tokenizer, int writers, const KeepRule& keep,
                                 Timeline* timeline)
    : grid_(grid),
      group_(grid.world().group()),
      backend_(backend),
      model_(model),
      tokenizer_(tokenizer),
      keep_(keep),
      timeline_(timeline),
      table_(gpt2_parameter_table(model.config())),
      division_(divide_among_files(table_, writers)) {
  check(writers <= group_.size(), "checkpoint: ", writers, " writers among ", group_.size(), " ranks");
}

int CheckpointSaver::rank_of(std::size_t file) const {
  return static_cast<int>(file * static_cast<std::size_t>(group_.size()) / division_.size());
}

std::optional<std::size_t> CheckpointSaver::own_file() const {
  for (std::size_t file = 0; file < division_.size(); ++file) {
    if (rank_of(file) == group_.rank()) return file;
  }
  return std::nullopt;
}

PieceLayout CheckpointSaver::layout() const { return placed_in_parts(table_, grid_); }

std::vector<Writer> CheckpointSaver::writers() const {
  std::vector<Writer> writers;
  for (std::size_t file = 0; file < division_.size(); ++file) {
    Writer writer{rank_of(file), {}};
    for (std::size_t arena = 0; arena < kArenas; ++arena) {
      for (const Piece& piece : file_pieces(table_, division_[file]))
        writer.fetches.push_back({arena, piece});
    }
    writers.push_back(std::move(writer));
  }
  return writers;
}

SavedCheckpoint CheckpointSaver::save(RunDirectory* directory, const std::vector<OwnedArena>& arenas,
                                      const TrainerState& state) {
  const Time start = std::chrono::steady_clock::now();
  const Watch watch{[this] { group_.beat(); }, SpanKind::phase};
  if (directory != nullptr) directory->set_heartbeat(watch.beat);
  try {
    Written written;
    written.temporary = text_from_root(group_, [&] {
      begin(*directory, state, written, watch);
      return written.temporary.string();
    });
    PieceStream stream(group_, backend_, layout(), arenas, writers());
    stream.run([&] {
      const CheckpointValues values = {stream.values(kWeights),
                                       {stream.values(kFirstMoment), stream.values(kSecondMoment)}};
      if (own_file()) written.own = write_own(written.temporary, values, watch);
    });
    gather_entries(written);
    SavedCheckpoint saved{state.step, {}};
    on_root(group_, [&] { saved = commit(*directory, state, written, start, watch); });
    return saved;
  } catch (...) {
    if (directory != nullptr) directory->abandon_checkpoint(state.step);
    throw;
  }
}

void CheckpointSaver::begin(RunDirectory& directory, const TrainerState& state, Written& written,
                            const Watch& watch) const {
  const Recorded span(timeline_, "write files", watch.kind);
  sync_file(directory.metrics());  // so that the metrics contain all steps of the checkpoint
  written.temporary = directory.begin_checkpoint(state.step);
  watch.beat();
  written.description = write_description(written.temporary, model_.config(), &tokenizer_, watch.beat);
}

TensorEntries CheckpointSaver::write_own(const fs::path& temporary, const CheckpointValues& values,
                                         const Watch& watch) const {
  const Recorded span(timeline_, "write files", watch.kind);
  const TensorEntries entries =
      write_tensors(temporary, model_.config(), division_, *own_file(), values, watch.beat);
  if (!group_.is_root()) sync_directory(temporary);  // rank 0 does so when it commits the checkpoint
  return entries;
}

void CheckpointSaver::gather_entries(Written& written) const {
  const auto all = gather(group_, std::array{sent(written.own.weights), sent(written.own.moments)});
  for (std::size_t file = 0; file < division_.size(); ++file) {
    const auto& [weights, moments] = all[static_cast<std::size_t>(rank_of(file))];
    written.tensors.push_back(
        {received(tensor_file_name(kModelTensors, file, division_.size()), weights),
         received(tensor_file_name(kOptimizerTensors, file, division_.size()), moments)});
  }
}

SavedCheckpoint CheckpointSaver::commit(RunDirectory& directory, const TrainerState& state,
                                        const Written& written, Time start, const Watch& watch) const {
  const Recorded span(timeline_, "commit", watch.kind);
  const std::vector<FileEntry> files = finish_checkpoint(written.temporary, model_.config(), division_,
                                                         written.description, written.tensors, state);
  watch.beat();
  const fs::path path = directory.commit_checkpoint(state.step, files);
  directory.prune(keep_);
  return {state.step, checkpoint_note(path, files, seconds_since(start))};
}

void CheckpointSaver::start(RunDirectory* directory, const std::vector<OwnedArena>& arenas,
                            const TrainerState& state) {
  check(!background_, "checkpoint: the one before is in progress");
  const Time start = std::chrono::steady_clock::now();
  agree(group_, [&] {
    if (own_file() && !copy_) copy_.emplace(table_, division_[*own_file()], kArenas);
  });
  PieceStream stream(group_, backend_, layout(), arenas, writers());
  stream.run([&] {
    for (std::size_t arena = 0; copy_ && arena < kArenas; ++arena) copy_->take(arena, stream.values(arena));
  });
  background_ = std::make_unique<Background>(directory, state, start);
  if (directory != nullptr) directory->set_heartbeat([&beats = background_->beats] { ++beats; });
  start_phase();
}

void CheckpointSaver::start_phase() {
  Background& save = *background_;
  const Watch watch{[&save] { ++save.beats; }, SpanKind::checkpoint};
  const auto run = [&](std::function<void()> part) {
    try {
      save.job = std::async(std::launch::async, std::move(part));
    } catch (...) {  // there is no thread for it: the ranks agree on that at the end of the phase
      std::promise<void> failed;
      failed.set_exception(std::current_exception());
      save.job = failed.get_future();
    }
  };
  switch (save.phase) {
    case Background::Phase::begin:
      if (group_.is_root())
        run([=, this, &save] { begin(*save.directory, save.state, save.written, watch); });
      break;
    case Background::Phase::tensors:
      if (!copy_) break;
      run([=, this, &save] {
        const CheckpointValues values = {copy_->values(kWeights),
                                         {copy_->values(kFirstMoment), copy_->values(kSecondMoment)}};
        save.written.own = write_own(save.written.temporary, values, watch);
      });
      break;
    case Background::Phase::commit:
      if (group_.is_root())
        run([=, this, &save] {
          save.saved = commit(*save.directory, save.state, save.written, save.start, watch);
        });
      break;
  }
}

std::optional<SavedCheckpoint> CheckpointSaver::advance() {
  check(background_ != nullptr, "checkpoint: none is in progress");
  constexpr auto kNow = std::chrono::seconds(0);
  const std::future<void>& job = background_->job;
  const bool works = job.valid() && job.wait_for(kNow) != std::future_status::ready;
  if (any(group_, works)) return std::nullopt;
  return next_phase();
}

SavedCheckpoint CheckpointSaver::finish() {
  while (true) {
    wait_for_progress();
    if (const auto saved = advance()) return *saved;
  }
}

std::optional<SavedCheckpoint> CheckpointSaver::next_phase() {
  Background& save = *background_;
  try {
    agree(group_, [&] {
      if (save.job.valid()) save.job.get();
    });
  } catch (...) {
    if (save.directory != nullptr) save.directory->abandon_checkpoint(save.state.step);
    background_.reset();
    throw;
  }
  switch (save.phase) {
    case Background::Phase::begin:
      save.written.temporary = broadcast_text(group_, save.written.temporary.string());
      save.phase = Background::Phase::tensors;
      break;
    case Background::Phase::tensors:
      gather_entries(save.written);
      save.phase = Background::Phase::commit;
      break;
    case Background::Phase::commit:
      const SavedCheckpoint saved{save.state.step, save.saved.note};
      background_.reset();
      return saved;
  }
  start_phase();
  return std::nullopt;
}

// Without progress it does not return, so that the watchdog finds a disk that hangs.
void CheckpointSaver::wait_for_progress() const {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  const Background& save = *background_;
  const std::int64_t seen = save.beats;
  while (save.job.valid() && save.job.wait_for(kInterval) != std::future_status::ready &&
         save.beats == seen) {
  }
  group_.beat();
}

}  // namespace stagegpt
