// The directory of a run. What stands under a final name is whole, whenever the machine stops.
//
//   run.json  tokenizer.json  metrics.jsonl       see docs/file_formats.md
//   events.out.tfevents.000001                    for TensorBoard; one more each time it goes on
//   traces/step_00000001.safetensors              with --trace-steps
//   checkpoints/step_00001000/                    each with a manifest
//   latest -> checkpoints/step_…   best -> checkpoints/step_…
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/io/file.h"
#include "common/io/hashed_file.h"

namespace stagegpt {

// What the names of TensorBoard's event files begin with; see tensorboard_log.h.
inline constexpr std::string_view kEventFile = "events.out.tfevents.";

// How many checkpoints stay: the last ones, those at multiples of `every` (0: none), and the best.
struct KeepRule {
  std::int64_t last = 2;
  std::int64_t every = 0;
};

class RunDirectory {
 public:
  // Makes a run's directory. Throws UserError when there is a run in it, or anything else, or another
  // process is using it.
  static RunDirectory create(const std::filesystem::path& path);
  // Makes the first of runs/NAME, runs/NAME-2, … that is not there.
  static RunDirectory create_numbered(const std::string& name);
  // One that is there. Throws UserError when there is no run in it, or another process is using it.
  static RunDirectory open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path configuration() const { return path_ / "run.json"; }
  std::filesystem::path tokenizer() const { return path_ / "tokenizer.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path traces() const { return path_ / "traces"; }

  // Called while checkpoints are committed and pruned, which may mean to read them.
  void set_heartbeat(Heartbeat beat) { beat_ = std::move(beat); }

  // A checkpoint is written into the directory that begin_checkpoint() makes, files first; then
  // commit_checkpoint() gives it its manifest and its name, and moves `latest` and `best`: the checkpoint
  // with the lowest of the validation losses that were taken over the same tokens as the newest one. Both
  // throw std::runtime_error that names the file when something cannot be written; what was there before
  // stays.
  std::filesystem::path begin_checkpoint(std::int64_t step);
  std::filesystem::path commit_checkpoint(std::int64_t step, const std::vector<FileEntry>& files);
  // Reads the newest checkpoint, made or gone on from here, back from the disk while the caller goes on;
  // once. What comes is whether it verifies; it is valid if there is one.
  std::shared_future<bool> read_back_newest();
  // Removes what begin_checkpoint() made, if that is still there.
  void abandon_checkpoint(std::int64_t step) noexcept;

  // Removes checkpoints that the rule does not keep. Two that verify always stay, beside the best.
  void prune(const KeepRule& keep);

  // Takes a checkpoint for the one to go on with: `latest` names it, and newer ones, which are damaged, are
  // renamed to step_N.damaged.
  void go_on_from(const std::filesystem::path& checkpoint);

 private:
  RunDirectory(std::filesystem::path path, FileDescriptor lock);

  // Where a checkpoint stands while it is written.
  std::filesystem::path unfinished(std::int64_t step) const;
  void set_aside(const std::filesystem::path& checkpoint);
  // Points `latest` and `best` at checkpoints. Without links, on a disk that has none, a run is whole too.
  void set_links(const std::filesystem::path& latest);
  void set_link(const char* name, const std::filesystem::path& checkpoint);
  std::optional<std::filesystem::path> best() const;
  bool is_whole(const std::filesystem::path& checkpoint);
  // Waits for what read_back_newest() has begun, with a heartbeat whenever it has read on.
  bool wait_for_read_back();

  std::filesystem::path path_;
  FileDescriptor lock_;
  std::filesystem::path newest_;
  std::filesystem::path read_back_;  // newest_, now or before
  std::shared_future<bool> read_back_is_whole_;
  std::shared_ptr<std::atomic<std::int64_t>> blocks_read_back_;
  Heartbeat beat_ = [] {};
};

// Throws UserError unless RunDirectory::create() can make one here, as far as that can be known.
void require_no_run(const std::filesystem::path& path);

// What a checkpoint is called, and the step of one that is called so.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> step_in_name(const std::string& name);

// All checkpoints of a run by step, whole or not.
std::map<std::int64_t, std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// The newest checkpoint that verifies. Each newer one that does not is named on standard error. Throws
// UserError when there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run);

}  // namespace stagegpt
