#include "common/train/save_checkpoint.h"

#include <chrono>
#include <cstdio>

#include "common/base/seconds_since.h"
#include "common/checkpoint/checkpoint.h"
#include "common/comm/agreement.h"
#include "common/parallel/whole_values.h"
#include "common/train/checkpoint_arenas.h"

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

std::string save_checkpoint(RunDirectory* directory, const Grid& grid, Backend& backend,
                            const LanguageModel& model, const AdamW& optimizer, const Tokenizer& tokenizer,
                            const TrainerState& state, const TrainingRunConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  RankGroup& group = grid.world().group();
  const auto beat = [&group] { group.beat(); };
  std::string note;
  try {
    fs::path temporary;
    on_root(group, [&] {
      directory->set_heartbeat(beat);
      temporary = directory->begin_checkpoint(state.step);
    });
    const ParameterTable table = gpt2_parameter_table(model.config());
    PieceStream stream(group, backend, placed_in_parts(table, grid),
                       checkpoint_arenas(grid, model, optimizer));
    std::vector<FileEntry> files;
    stream.run([&] {
      constexpr std::size_t kWeights = 0, kFirstMoment = 1, kSecondMoment = 2;  // as in checkpoint_arenas()
      const Recorded span(config.trainer.timeline, "write files", SpanKind::phase);
      files = write_checkpoint(
          temporary, model.config(),
          {stream.values(kWeights), {stream.values(kFirstMoment), stream.values(kSecondMoment)}}, tokenizer,
          state, beat);
    });
    on_root(group, [&] {
      const Recorded span(config.trainer.timeline, "commit", SpanKind::phase);
      const fs::path path = directory->commit_checkpoint(state.step, files);
      directory->prune(config.keep);
      note = checkpoint_note(path, files, seconds_since(start));
    });
  } catch (...) {
    if (directory != nullptr) directory->abandon_checkpoint(state.step);
    throw;
  }
  return note;
}

}  // namespace stagegpt
