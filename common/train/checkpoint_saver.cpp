#include "common/train/checkpoint_saver.h"

#include <chrono>
#include <cstdio>

#include "common/base/seconds_since.h"
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

}  // namespace

CheckpointSaver::CheckpointSaver(const Grid& grid, Backend& backend, const LanguageModel& model,
                                 const Tokenizer& tokenizer, const KeepRule& keep, Timeline* timeline)
    : grid_(grid),
      group_(grid.world().group()),
      backend_(backend),
      model_(model),
      tokenizer_(tokenizer),
      keep_(keep),
      timeline_(timeline) {}

std::string CheckpointSaver::save(RunDirectory* directory, const std::vector<OwnedArena>& arenas,
                                  const TrainerState& state) {
  const auto start = std::chrono::steady_clock::now();
  std::string note;
  try {
    fs::path temporary;
    on_root(group_, [&] {
      directory->set_heartbeat([this] { group_.beat(); });
      temporary = directory->begin_checkpoint(state.step);
    });
    const ParameterTable table = gpt2_parameter_table(model_.config());
    PieceStream stream(group_, backend_, placed_in_parts(table, grid_), arenas);
    std::vector<FileEntry> files;
    stream.run([&] {
      constexpr std::size_t kWeights = 0, kFirstMoment = 1, kSecondMoment = 2;  // as in checkpoint_arenas()
      const Recorded span(timeline_, "write files", SpanKind::phase);
      files = write_checkpoint(
          temporary, model_.config(),
          {stream.values(kWeights), {stream.values(kFirstMoment), stream.values(kSecondMoment)}}, tokenizer_,
          state, [this] { group_.beat(); });
    });
    on_root(group_, [&] {
      const Recorded span(timeline_, "commit", SpanKind::phase);
      const fs::path path = directory->commit_checkpoint(state.step, files);
      directory->prune(keep_);
      note = checkpoint_note(path, files, seconds_since(start));
    });
  } catch (...) {
    if (directory != nullptr) directory->abandon_checkpoint(state.step);
    throw;
  }
  return note;
}

}  // namespace stagegpt
