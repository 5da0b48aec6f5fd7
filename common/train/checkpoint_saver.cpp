#include "common/train/checkpoint_saver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "common/base/seconds_since.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/comm/agreement.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWeights = 0, kFirstMoment = 1, kSecondMoment = 2, kArenas = 3;

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

CheckpointSaver::CheckpointSaver(RankGroup& group, Backend& backend, const Gpt2& model,
                                 const Tokenizer& tokenizer, int writers, Timeline* timeline)
    : group_(group),
      backend_(backend),
      model_(model),
      tokenizer_(tokenizer),
      timeline_(timeline),
      division_(divide_among_files(model.parameters().table(), writers)) {
  check(writers <= group.size(), "checkpoint: ", writers, " writers among ", group.size(), " ranks");
}

int CheckpointSaver::rank_of(std::size_t file) const {
  return static_cast<int>(file * static_cast<std::size_t>(group_.size()) / division_.size());
}

std::vector<Writer> CheckpointSaver::writers() const {
  std::vector<Writer> writers;
  for (std::size_t file = 0; file < division_.size(); ++file) {
    Writer writer{rank_of(file), {}};
    for (std::size_t arena = 0; arena < kArenas; ++arena) {
      for (const Piece& piece : file_pieces(model_.parameters().table(), division_[file]))
        writer.fetches.push_back({arena, piece});
    }
    writers.push_back(std::move(writer));
  }
  return writers;
}

std::string CheckpointSaver::save(RunDirectory* directory, const std::vector<OwnedArena>& arenas,
                                  const TrainerState& state, const KeepRule& keep,
                                  const std::function<void()>& before) {
  const auto start = std::chrono::steady_clock::now();
  const Gpt2Config& config = model_.config();
  const Heartbeat beat = [this] { group_.beat(); };
  try {
    std::vector<FileEntry> files;
    std::vector<TensorEntries> tensors;
    {
      const Recorded span(timeline_, "write files", SpanKind::phase);
      const fs::path path = text_from_root(group_, [&] {
        before();
        const fs::path temporary = directory->begin_checkpoint(state.step);
        beat();
        files = write_description(temporary, config, &tokenizer_, beat);
        return temporary.string();
      });
      tensors = write(path, arenas);
      on_root(group_, [&] {
        files = finish_checkpoint(path, config, division_, std::move(files), tensors, state);
        beat();
      });
    }
    const Recorded span(timeline_, "commit", SpanKind::phase);
    return text_from_root(group_, [&] {
      const fs::path path = directory->commit_checkpoint(state.step, files);
      directory->prune(keep);
      return checkpoint_note(path, files, seconds_since(start));
    });
  } catch (...) {
    if (directory != nullptr) directory->abandon_checkpoint(state.step);
    throw;
  }
}

std::vector<TensorEntries> CheckpointSaver::write(const fs::path& directory,
                                                  const std::vector<OwnedArena>& arenas) {
  const std::vector<Writer> all = writers();
  const auto own = std::ranges::find(all, group_.rank(), &Writer::rank);
  const auto file = static_cast<std::size_t>(own - all.begin());
  PieceStream stream(group_, backend_, model_.parameters().table(), arenas, all);
  TensorEntries entries;
  stream.run([&] {
    if (own == all.end()) return;
    const CheckpointValues values = {stream.values(kWeights),
                                     {stream.values(kFirstMoment), stream.values(kSecondMoment)}};
    entries = write_tensors(directory, model_.config(), division_, file, values, [this] { group_.beat(); });
    if (!group_.is_root()) sync_directory(directory);  // rank 0 does so when it commits the checkpoint
  });
  return gathered(entries);
}

std::vector<TensorEntries> CheckpointSaver::gathered(const TensorEntries& own) const {
  const auto all = gather(group_, std::array{sent(own.weights), sent(own.moments)});
  std::vector<TensorEntries> entries;
  for (std::size_t file = 0; file < division_.size(); ++file) {
    const auto& [weights, moments] = all[static_cast<std::size_t>(rank_of(file))];
    entries.push_back({received(tensor_file_name(kModelTensors, file, division_.size()), weights),
                       received(tensor_file_name(kOptimizerTensors, file, division_.size()), moments)});
  }
  return entries;
}

}  // namespace stagegpt
