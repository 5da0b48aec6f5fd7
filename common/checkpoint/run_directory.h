// The directory of a run. A file or directory gets its final name only when it is complete, also if the
// machine crashes.
//
//   run.json  tokenizer.json  metrics.jsonl       see docs/file_formats.md
//   events.out.tfevents.000001                    for TensorBoard; a new one after each resume
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

#include "common/io/content_hash.h"
#include "common/io/file.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// The prefix of the names of TensorBoard's event files; see tensorboard_log.h.
inline constexpr std::string_view kEventFile = "events.out.tfevents.";

// Which checkpoints are kept: the last `last` ones, those at multiples of `every` steps (0: none), and the
// best.
struct KeepRule {
  std::int64_t last = 2;
  std::int64_t every = 0;
};

class RunDirectory {
 public:
  // Creates a run's directory. Throws UserError if the directory has a run or other files, or another process
  // uses it.
  static RunDirectory create(const std::filesystem::path& path);
  // Creates the first of runs/NAME, runs/NAME-2, … that does not exist.
  static RunDirectory create_numbered(const std::string& name);
  // Opens an existing run. Throws UserError if there is no run, or another process uses it.
  static RunDirectory open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path configuration() const { return path_ / "run.json"; }
  std::filesystem::path tokenizer() const { return path_ / "tokenizer.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path traces() const { return path_ / "traces"; }

  // Called while checkpoints are committed and pruned, which may include reading them.
  void set_heartbeat(Heartbeat beat) { beat_ = std::move(beat); }
  // Records when checkpoints are read back; null: does not. It must live as long as the directory.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }

  // begin_checkpoint() creates a temporary directory, into which the caller writes the files.
  // commit_checkpoint() adds the manifest, renames the directory to its final name, and updates the links
  // `latest` and `best`. The best checkpoint has the lowest validation loss among those measured on the same
  // tokens as the newest one. Both throw std::runtime_error that names the file if something cannot be
  // written; earlier checkpoints are kept.
  std::filesystem::path begin_checkpoint(std::int64_t step);
  std::filesystem::path commit_checkpoint(std::int64_t step, const std::vector<FileEntry>& files);
  // Reads the newest checkpoint (committed, or resumed from) back from the disk in another thread; once per
  // checkpoint. The result is whether it verifies. The future is valid if there is a checkpoint.
  std::shared_future<bool> read_back_newest();
  // Removes the temporary directory of begin_checkpoint() if it still exists.
  void abandon_checkpoint(std::int64_t step) noexcept;

  // Removes checkpoints that the rule does not keep. The two newest checkpoints that verify, and the best,
  // are always kept.
  void prune(const KeepRule& keep);

  // Makes a checkpoint the one to resume from: points `latest` at it, and renames newer ones, which are
  // damaged, to step_N.damaged.
  void resume_from(const std::filesystem::path& checkpoint);

 private:
  RunDirectory(std::filesystem::path path, FileDescriptor lock);

  // The path of a checkpoint while it is written.
  std::filesystem::path temporary_path(std::int64_t step) const;
  void rename_damaged(const std::filesystem::path& checkpoint);
  // Points `latest` and `best` at checkpoints. An error is only a warning, because a run is complete without
  // links; some file systems have none.
  void set_links(const std::filesystem::path& latest);
  void set_link(const char* name, const std::filesystem::path& checkpoint);
  std::optional<std::filesystem::path> best() const;
  bool is_whole(const std::filesystem::path& checkpoint);
  // Waits for the thread of read_back_newest(), with a heartbeat whenever it has made progress.
  bool wait_for_read_back();

  std::filesystem::path path_;
  FileDescriptor lock_;
  std::filesystem::path newest_;
  std::filesystem::path read_back_;  // the checkpoint that is or was read back; newest_ or an earlier one
  std::shared_future<bool> read_back_is_whole_;
  std::shared_ptr<std::atomic<std::int64_t>> blocks_read_back_;
  Heartbeat beat_ = [] {};
  Timeline* timeline_ = nullptr;
};

// Throws UserError if RunDirectory::create() would refuse this path.
void require_no_run(const std::filesystem::path& path);

// The name of a checkpoint, and the step in such a name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> step_in_name(const std::string& name);

// All checkpoints of a run by step, valid or damaged.
std::map<std::int64_t, std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// The newest checkpoint that verifies. Each newer one that does not verify is named on standard error. Throws
// UserError if there is none.
std::filesystem::path newest_checkpoint(
    const std::filesystem::path& run, const Heartbeat& beat = [] {});

}  // namespace stagegpt
