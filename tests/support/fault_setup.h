// The settings of fault_injection.cpp, from environment variables, and the names and files that they concern.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <string>

// All operations use direct system calls. So nothing has to be looked up before the first call, which may
// precede main, and no function calls back into this library. Reads, and writes to pipes (by signal
// handlers), allocate no memory.
namespace fault {

inline constexpr int kMisuse = 99;  // exit status for invalid settings

[[noreturn]] inline void refuse(const std::string& problem) {
  const std::string line = "fault_injection: " + problem + "\n";
  syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
  for (;;) syscall(SYS_exit_group, kMisuse);
}

enum class Kind { none, kill, kill_halfway, power_loss, data_loss, enospc, eio, short_write, eintr };
inline constexpr const char* kKindNames[] = {"none",   "kill", "kill_halfway", "power_loss", "data_loss",
                                             "enospc", "eio",  "short_write",  "eintr"};

struct Settings {
  std::string root, log, keep;  // root is the path that the kernel uses
  long at = 0;
  Kind kind = Kind::none;

  Settings() {
    const auto value = [](const char* name) {
      const char* text = getenv(name);
      return std::string(text == nullptr ? "" : text);
    };
    if (value("FAULT_ROOT").empty()) return;
    char real[PATH_MAX];
    if (realpath(value("FAULT_ROOT").c_str(), real) == nullptr) refuse("FAULT_ROOT does not exist");
    root = real;
    log = value("FAULT_LOG");
    keep = value("FAULT_KEEP");
    if (value("FAULT_AT").empty()) return;
    at = atol(value("FAULT_AT").c_str());
    const auto* name = std::find(std::begin(kKindNames), std::end(kKindNames), value("FAULT_KIND"));
    if (name == std::end(kKindNames) || at < 1) refuse("FAULT_AT or FAULT_KIND is wrong");
    kind = static_cast<Kind>(name - std::begin(kKindNames));
    struct stat at_root, at_keep;
    if (kind == Kind::power_loss && (stat(real, &at_root) != 0 || stat(keep.c_str(), &at_keep) != 0 ||
                                     at_root.st_dev != at_keep.st_dev)) {
      refuse("power_loss needs a directory FAULT_KEEP on the file system of FAULT_ROOT");
    }
  }
  bool loses_power() const { return kind == Kind::power_loss || kind == Kind::data_loss; }
  bool holds(const std::string& path) const { return path.starts_with(root) && path[root.size()] == '/'; }
};

// Settings and state are never destroyed, because the program may write until its end.
inline const Settings& settings() {
  static const Settings& settings = *new Settings;
  return settings;
}

inline std::atomic<bool> dying = false;

// During a power loss names are moved, so that another thread would see wrong paths; it waits here instead.
inline void never_return_if_dying() {
  while (dying) syscall(SYS_pause);
}

inline std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

inline std::string path_of(int fd) {
  char path[PATH_MAX];
  const long length = syscall(SYS_readlink, proc_path(fd).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max(length, 0L))};
}

inline int hold(int at, const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, at, path, O_PATH | O_CLOEXEC | flags));
}

// A name in an open directory. The directory's path is the kernel's, so that each name has exactly one path,
// even if the program uses different paths for it.
struct Entry {
  Entry(int at, const char* given) {
    if (settings().root.empty() || given == nullptr) return;
    path = given;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::size_t slash = path.rfind('/');
    name = path.substr(slash + 1);  // the whole path if there is no slash
    if (name.empty() || name == "." || name == "..") return;
    parent = hold(at, slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(), O_DIRECTORY);
    path = path_of(parent) + "/" + name;
    counts = settings().holds(path);
    if (!counts) never_return_if_dying();
  }
  ~Entry() {
    if (parent >= 0) syscall(SYS_close, parent);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  bool exists() const {
    struct stat unused;
    return fstatat(parent, name.c_str(), &unused, AT_SYMLINK_NOFOLLOW) == 0;
  }
  int parent = -1;
  std::string path, name;
  bool counts = false;
};

// The path of an open file or directory if calls on it count, else an empty string.
inline std::string path_that_counts(int fd) {
  struct stat status;
  if (settings().root.empty() || fd <= STDERR_FILENO || fstat(fd, &status) != 0) return {};
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return {};
  std::string path = path_of(fd);
  if (settings().holds(path) || path == settings().root) return path;
  never_return_if_dying();
  return {};
}

}  // namespace fault
