#include "common/checkpoint/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "common/base/error.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFlag = "--run-dir";
constexpr const char *kRun = "run.json", *kTokenizer = "tokenizer.json", *kMetrics = "metrics.jsonl";
constexpr const char *kLock = ".lock", *kCheckpoints = "checkpoints", *kTraces = "traces";
constexpr const char *kLatest = "latest", *kBest = "best";
constexpr std::string_view kStep = "step_", kTemporary = ".tmp";

[[noreturn]] void fail(std::string_view action, const fs::path& path, std::string_view why) {
  throw std::runtime_error(concat("cannot ", action, " ", path, ": ", why));
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail("rename", from, error.message());
}

// The directory is renamed first, so that a partly removed checkpoint does not keep its name.
void remove_directory(const fs::path& path) {
  fs::path removed = path;
  removed += concat(".old", kTemporary);
  fs::remove_all(removed);
  rename_or_throw(path, removed);
  fs::remove_all(removed);
}

// The lock is held until the descriptor is closed, at the latest at the end of the process.
FileDescriptor lock_run(const fs::path& run) {
  constexpr int kMode = 0666;
  const fs::path path = run / kLock;
  FileDescriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode));
  if (!lock.is_open()) user_error(kRunFlag, ": cannot write into ", run, ": ", std::strerror(errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) user_error(kRunFlag, ": cannot lock ", path, ": ", std::strerror(errno));
    user_error(kRunFlag, ": another process is training in ", run);
  }
  return lock;
}

// Whether a file is a temporary file that a stopped process has left.
bool is_left_over(const fs::path& path) {
  const std::string name = path.filename();
  for (const char* unfinished : {kRun, kLatest, kBest, kMetrics}) {
    if (name == concat(unfinished, kTemporary)) return true;
  }
  return name.starts_with(kStep) && name.ends_with(kTemporary);
}

void remove_left_overs(const fs::path& directory) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (is_left_over(entry.path())) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path);
}

bool verifies(const fs::path& checkpoint, const Heartbeat& beat) {
  try {
    verify_checkpoint(checkpoint, beat);
    return true;
  } catch (const std::runtime_error& error) {  // damaged, or cannot be read

    std::cerr << "note: " << error.what() << '\n';
    return false;
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> step_in_name(const std::string& name) {
  std::int64_t step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  return name == checkpoint_name(step) ? std::optional(step) : std::nullopt;
}

void require_no_run(const fs::path& path) {
  if (!checkpoints_of(path).empty()) {
    user_error(kRunFlag, ": ", path,
               " already has a run; continue it with --resume, or name another directory");
  }
  std::error_code error;
  if (!fs::exists(path, error)) return;
  if (!fs::is_directory(path, error)) user_error(kRunFlag, ": ", path, " is not a directory");
  const bool begun = file_exists(path / kLock);
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    // A run that was stopped before its first checkpoint is started again in the same directory.
    const bool ours = begun && (name == kRun || name == kLock || name == kCheckpoints || name == kTokenizer ||
                                name == kMetrics || name == kTraces || name.starts_with(kEventFile) ||
                                is_left_over(entry.path()));
    if (!ours) user_error(kRunFlag, ": ", path, " is not empty: it holds ", entry.path().filename());
  }
  if (error) user_error(kRunFlag, ": cannot read ", path, ": ", error.message());
}

RunDirectory::RunDirectory(fs::path path, FileDescriptor lock)
    : path_(std::move(path)), lock_(std::move(lock)) {
  make_directories(path_ / kCheckpoints);
  remove_left_overs(path_);
  remove_left_overs(path_ / kCheckpoints);
  if (fs::is_directory(traces())) remove_left_overs(traces());
}

RunDirectory RunDirectory::create(const fs::path& path) {
  require_no_run(path);
  try {
    make_directories(path);
  } catch (const std::runtime_error& error) {
    user_error(kRunFlag, ": ", error.what());
  }
  FileDescriptor lock = lock_run(path);
  require_no_run(path);  // another process may have created a run in the meantime
  return {path, std::move(lock)};
}

RunDirectory RunDirectory::create_numbered(const std::string& name) {
  const fs::path runs = "runs";
  make_directories(runs);
  for (int number = 1;; ++number) {
    const fs::path path = runs / (number == 1 ? name : concat(name, "-", number));
    std::error_code error;
    if (fs::create_directory(path, error)) {  // false if it existed already
      sync_directory(runs);
      return create(path);
    }
    if (error && !file_exists(path)) user_error(kRunFlag, ": cannot create ", path, ": ", error.message());
  }
}

RunDirectory RunDirectory::open(const fs::path& path) {
  if (!file_exists(path / kRun)) user_error("--resume: ", path, " has no run");
  return {path, lock_run(path)};
}

fs::path RunDirectory::temporary_path(std::int64_t step) const {
  return path_ / kCheckpoints / concat(checkpoint_name(step), kTemporary);
}

fs::path RunDirectory::begin_checkpoint(std::int64_t step) {
  const fs::path path = temporary_path(step);
  fs::remove_all(path);
  make_directories(path);
  return path;
}

fs::path RunDirectory::commit_checkpoint(std::int64_t step, const std::vector<FileEntry>& files) {
  const fs::path path = path_ / kCheckpoints / checkpoint_name(step), temporary = temporary_path(step);
  write_manifest(temporary, files);
  beat_();
  sync_directory(temporary);
  beat_();
  if (file_exists(path)) remove_directory(path);  // damaged; the run was resumed from an older one
  rename_or_throw(temporary, path);
  sync_directory(path.parent_path());
  beat_();
  newest_ = path;
  set_links(path);
  beat_();
  return path;
}

std::shared_future<bool> RunDirectory::read_back_newest() {
  if (read_back_ != newest_) {
    read_back_ = newest_;
    blocks_read_back_ = std::make_shared<std::atomic<std::int64_t>>(0);
    read_back_is_whole_ =
        std::async(std::launch::async, [path = read_back_, blocks = blocks_read_back_, timeline = timeline_] {
          const Recorded span(timeline, "read back", SpanKind::checkpoint);
          return verifies(path, [&] { ++*blocks; });
        });
  }
  return read_back_is_whole_;
}

void RunDirectory::abandon_checkpoint(std::int64_t step) noexcept {
  try {
    fs::remove_all(temporary_path(step));
  } catch (...) {  // the rest is removed when the run is opened again
  }
}

void RunDirectory::prune(const KeepRule& keep) {
  constexpr int kAlwaysWhole = 2;
  const auto checkpoints = checkpoints_of(path_);
  const auto best_path = best();
  int whole = 0;
  std::int64_t newer = 0;
  for (auto entry = checkpoints.rbegin(); entry != checkpoints.rend(); ++entry, ++newer) {
    const auto& [step, path] = *entry;
    const bool kept = newer < keep.last || (keep.every > 0 && step % keep.every == 0) || path == best_path;
    if (whole >= kAlwaysWhole) {
      if (!kept) remove_directory(path);
      beat_();
    } else if (is_whole(path)) {
      ++whole;
    } else {
      rename_damaged(path);
    }
  }
}

bool RunDirectory::is_whole(const fs::path& checkpoint) {
  if (checkpoint == read_back_) return wait_for_read_back();
  return checkpoint == newest_ || verifies(checkpoint, beat_);
}

bool RunDirectory::wait_for_read_back() {
  constexpr auto kInterval = std::chrono::milliseconds(100);
  std::int64_t seen = 0;
  while (read_back_is_whole_.wait_for(kInterval) != std::future_status::ready) {
    const std::int64_t blocks = *blocks_read_back_;
    if (blocks != seen) beat_();
    seen = blocks;
  }
  return read_back_is_whole_.get();
}

void RunDirectory::resume_from(const fs::path& checkpoint) {
  for (const auto& [step, path] : checkpoints_of(path_)) {
    if (path.filename() > checkpoint.filename()) rename_damaged(path);
  }
  newest_ = checkpoint;
  std::promise<bool> verified;  // it was verified when it was chosen
  verified.set_value(true);
  read_back_ = checkpoint;
  read_back_is_whole_ = verified.get_future().share();
  set_links(checkpoint);
}

void RunDirectory::rename_damaged(const fs::path& checkpoint) {
  fs::path renamed = checkpoint;
  renamed += ".damaged";
  fs::remove_all(renamed);
  rename_or_throw(checkpoint, renamed);
  std::cerr << "note: " << checkpoint << " is damaged and was renamed to " << renamed.filename() << '\n';
}

void RunDirectory::set_links(const fs::path& latest) {
  try {
    set_link(kLatest, latest);
    if (const auto best_path = best()) set_link(kBest, *best_path);
  } catch (const std::runtime_error& error) {
    std::cerr << "warning: " << error.what() << '\n';
  }
}

void RunDirectory::set_link(const char* name, const fs::path& checkpoint) {
  const fs::path target = fs::path(kCheckpoints) / checkpoint.filename(), link = path_ / name;
  std::error_code error;
  if (fs::read_symlink(link, error) == target) return;
  const fs::path temporary = path_ / concat(name, kTemporary);
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (error) fail("create", temporary, error.message());
  rename_or_throw(temporary, link);
  sync_directory(path_);
}

// The best, of equal losses the newest. Losses over other tokens than the newest are ignored, because they
// are not comparable.
std::optional<fs::path> RunDirectory::best() const {
  std::optional<fs::path> best;
  TrainerState lowest;
  const auto checkpoints = checkpoints_of(path_);
  for (auto entry = checkpoints.rbegin(); entry != checkpoints.rend(); ++entry) {
    try {
      const TrainerState state = read_trainer_state(entry->second);
      if (!state.validation_loss) continue;
      const bool better = state.validation_tokens == lowest.validation_tokens &&
                          *state.validation_loss < *lowest.validation_loss;
      if (best && !better) continue;
      best = entry->second;
      lowest = state;
    } catch (const UserError&) {  // a damaged checkpoint is not the best
    }
  }
  return best;
}

std::map<std::int64_t, fs::path> checkpoints_of(const fs::path& run) {
  std::map<std::int64_t, fs::path> checkpoints;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / kCheckpoints, error)) {
    const auto step = step_in_name(entry.path().filename());
    if (step) checkpoints.emplace(*step, entry.path());
  }
  return checkpoints;
}

fs::path newest_checkpoint(const fs::path& run, const Heartbeat& beat) {
  const auto checkpoints = checkpoints_of(run);
  for (auto entry = checkpoints.rbegin(); entry != checkpoints.rend(); ++entry) {
    if (verifies(entry->second, beat)) return entry->second;
  }
  if (checkpoints.empty()) {
    user_error("--resume: ", run, " has no checkpoint yet; start it again without --resume");
  }
  user_error("--resume: ", run, " has no undamaged checkpoint");
}

}  // namespace stagegpt
