// A library for LD_PRELOAD that injects faults into a program's calls to the file system, at any step of a
// save. It is configured by environment variables:
//
//   FAULT_ROOT=/abs/dir   Only calls on names and files under this directory count; not those on standard
//                         input, output and error, and not opening a file for reading.
//   FAULT_LOG=/abs/file   Each counted call appends the line `N name path [path2]`. The name is open (for
//                         writing or creating), close (of a file open for writing), write, fsync, ftruncate,
//                         rename, symlink, unlink, rmdir or mkdir, for all variants of the call.
//   FAULT_AT=N            The fault is injected into the N-th counted call, from 1. Without it calls are only
//                         counted.
//   FAULT_KIND            The kind of fault:
//     kill                SIGKILL ends the process before the call is executed.
//     kill_halfway        As kill, but the first half of a write is executed.
//     power_loss          As kill, and all that is not durable is lost: files written to since their last
//                         fsync keep half of their bytes, and creations, renames and removals are undone if a
//                         parent directory has had no fsync since (both parents, for a rename).
//     data_loss           As power_loss, but names are kept: only bytes are lost. This detects a file that
//                         was renamed before its fsync.
//     enospc              This call and all later writes and creations fail with ENOSPC.
//     eio                 This call fails with EIO.
//     short_write         A write writes half of its bytes, and returns their number.
//     eintr               A write fails with EINTR.
//   FAULT_KEEP=/abs/dir   For power_loss: an existing directory outside the root, on the same file system,
//                         for files that must be restored. Files that were never durable are moved there too.
//
// If the program ends before its N-th call, the power loss is simulated at its end: all that it has not made
// durable is lost, even if it has reported success. So a test increases N from 1 until no signal ends the
// program.
//
// Calls are counted per process. Not intercepted: fopen (and so the creation of a file by std::ofstream, but
// not its writes), sendfile, truncate, link, mmap and _exit. O_SYNC and sync do not make anything durable
// here.
#undef _FORTIFY_SOURCE  // its inline open would clash with the one defined here

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

#include "tests/support/fault_durability.h"

using namespace fault;

namespace {

constexpr mode_t kLogMode = 0644;

struct State {
  pid_t process = 0;
  long count = 0;
};

std::mutex state_mutex;

State& state() {
  static State& state = *new State;
  return state;
}

[[noreturn]] void die() {
  for (;;) syscall(SYS_kill, getpid(), SIGKILL);
}

__attribute__((destructor)) void lose_power_at_exit() {
  const std::lock_guard lock(state_mutex);
  // A forked child without a counted call still has its parent's records, which it must not undo.
  if (settings().loses_power() && state().process == getpid()) lose_power();
}

enum class Effect { other, creation, write };
enum class Fate { whole, half, half_and_death, failure };

void log_call(const std::string& line) {
  if (settings().log.empty()) return;
  const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
  const long fd = syscall(SYS_openat, AT_FDCWD, settings().log.c_str(), flags, kLogMode);
  if (fd < 0) refuse("cannot write " + settings().log);
  syscall(SYS_write, fd, line.data(), line.size());
  syscall(SYS_close, fd);
}

// Counts a call and decides how much of it is executed. The caller holds the mutex until then, so that
// records are in the order of execution.
Fate count(Effect effect, const std::string& name, const std::string& path, const std::string& path2 = "") {
  if (state().process != getpid()) {
    state() = State{.process = getpid()};
    forget_all();
  }
  const Kind kind = settings().kind;
  const long number = ++state().count;
  const bool now = number == settings().at, write = effect == Effect::write;
  log_call(std::to_string(number) + " " + name + " " + path + (path2.empty() ? "" : " " + path2) + "\n");
  const bool full = kind == Kind::enospc && number > settings().at && effect != Effect::other;
  if (full || (now && (kind == Kind::enospc || kind == Kind::eio || (kind == Kind::eintr && write)))) {
    errno = kind == Kind::enospc ? ENOSPC : kind == Kind::eio ? EIO : EINTR;
    return Fate::failure;
  }
  if (!now) return Fate::whole;
  if (kind == Kind::kill_halfway && write) return Fate::half_and_death;
  if (kind == Kind::kill || kind == Kind::kill_halfway) die();
  if (settings().loses_power()) {
    dying = true;
    lose_power();
    die();
  }
  return kind == Kind::short_write && write ? Fate::half : Fate::whole;
}

// `write_first(n)` writes the first n bytes.
template <typename WriteFirst>
ssize_t do_write(int fd, std::size_t n_bytes, WriteFirst write_first) {
  const std::string path = path_that_counts(fd);
  if (path.empty()) return write_first(n_bytes);
  const std::lock_guard lock(state_mutex);
  const Fate fate = count(Effect::write, "write", path);
  if (fate == Fate::failure) return -1;
  if (fate == Fate::half && n_bytes > 1) n_bytes /= 2;
  if (fate == Fate::half_and_death) n_bytes /= 2;
  const ssize_t written = write_first(n_bytes);
  if (fate == Fate::half_and_death) die();
  if (written > 0) note_write(fd);
  return written;
}

// Other calls on an open file. `note(fd)` records that the call has succeeded.
template <typename Carry, typename Note>
int do_on_file(const char* call, int fd, Carry carry, Note note) {
  const std::string path = path_that_counts(fd);
  if (path.empty()) return static_cast<int>(carry());
  const std::lock_guard lock(state_mutex);
  if (count(Effect::other, call, path) == Fate::failure) return -1;
  const int result = static_cast<int>(carry());
  if (result == 0) note(fd);
  return result;
}

template <typename Carry>
int do_create(const Entry& entry, Effect effect, const char* call, const char* path2, Carry carry) {
  if (!entry.counts) return static_cast<int>(carry());
  const std::lock_guard lock(state_mutex);
  if (count(effect, call, entry.path, path2) == Fate::failure) return -1;
  const int result = static_cast<int>(carry());
  if (result < 0 || effect != Effect::creation || settings().kind != Kind::power_loss) return result;
  const Name to = name_of(entry);
  note_change({inode_at(entry), {}, to, {}, {to.directory}});
  return result;
}

int do_open(int at, const char* path, int flags, mode_t mode) {
  const auto carry = [&] { return static_cast<int>(syscall(SYS_openat, at, path, flags, mode)); };
  if ((flags & (O_CREAT | O_TRUNC)) == 0 && (flags & O_ACCMODE) == O_RDONLY) return carry();
  const Entry entry(at, path);
  const bool creates = (flags & O_CREAT) != 0 && entry.counts && !entry.exists();
  return do_create(entry, creates ? Effect::creation : Effect::other, "open", "", carry);
}

int do_remove(int at, const char* path, int flags) {
  const Entry entry(at, path);
  const auto carry = [&] { return static_cast<int>(syscall(SYS_unlinkat, at, path, flags)); };
  if (!entry.counts) return carry();
  const std::lock_guard lock(state_mutex);
  if (count(Effect::other, flags == 0 ? "unlink" : "rmdir", entry.path) == Fate::failure) return -1;
  if (settings().kind != Kind::power_loss) return carry();
  const Lost lost = keep(entry);
  const int result = carry();
  if (result == 0) note_change({nullptr, {}, {}, lost, {lost.name.directory}});
  return result;
}

int do_rename(int at, const char* path, int to_at, const char* to_path, unsigned flags) {
  const Entry from(at, path), to(to_at, to_path);
  const auto carry = [&] {
    return static_cast<int>(syscall(SYS_renameat2, at, path, to_at, to_path, flags));
  };
  if (!from.counts && !to.counts) return carry();
  const std::lock_guard lock(state_mutex);
  if (count(Effect::other, "rename", from.path, to.path) == Fate::failure) return -1;
  if (settings().kind != Kind::power_loss || from.parent < 0 || to.parent < 0) return carry();
  Change change{inode_at(from), name_of(from), name_of(to), {}, {}, flags & RENAME_EXCHANGE};
  if (change.flags == 0) change.lost = keep(to);
  if (from.counts) change.awaits.push_back(change.from.directory);
  if (to.counts) change.awaits.push_back(change.to.directory);
  const int result = carry();
  // rename does nothing if both names are links to the same file.
  if (result == 0 && change.inode != change.lost.inode) note_change(change);
  return result;
}

// The bit of O_TMPFILE that O_DIRECTORY does not have. An open with O_TMPFILE has a mode too.
constexpr int kTemporary = O_TMPFILE & ~O_DIRECTORY;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | kTemporary)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return do_open(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | kTemporary)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return do_open(at, path, flags, mode);
}
int creat(const char* path, mode_t mode) {
  return do_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int at, const char* path, int flags, ...) __attribute__((alias("openat")));
int creat64(const char* path, mode_t mode) __attribute__((alias("creat")));

int close(int fd) {
  const auto carry = [&] { return static_cast<int>(syscall(SYS_close, fd)); };
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY) return carry();
  bool closed = false;
  const int result = do_on_file(
      "close", fd, [&] { return closed = true, carry(); }, [](int) {});
  if (closed) return result;
  const int error = errno;
  carry();  // a close that fails still closes
  errno = error;
  return -1;
}

ssize_t write(int fd, const void* bytes, size_t n_bytes) {
  return do_write(fd, n_bytes, [&](size_t n) { return syscall(SYS_write, fd, bytes, n); });
}
ssize_t pwrite(int fd, const void* bytes, size_t n_bytes, off_t offset) {
  return do_write(fd, n_bytes, [&](size_t n) { return syscall(SYS_pwrite64, fd, bytes, n, offset); });
}
ssize_t writev(int fd, const iovec* parts, int n_parts) {
  size_t n_bytes = 0;
  for (int i = 0; i < n_parts; ++i) n_bytes += parts[i].iov_len;
  return do_write(fd, n_bytes, [&](size_t n) {
    if (n == n_bytes) return syscall(SYS_writev, fd, parts, n_parts);
    std::string bytes;
    for (int i = 0; i < n_parts; ++i)
      bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    return syscall(SYS_write, fd, bytes.data(), n);
  });
}
ssize_t pwrite64(int fd, const void* bytes, size_t n_bytes, off64_t offset) __attribute__((alias("pwrite")));

int fsync(int fd) {
  return do_on_file(
      "fsync", fd, [&] { return syscall(SYS_fsync, fd); }, note_sync);
}
int fdatasync(int fd) {
  return do_on_file(
      "fsync", fd, [&] { return syscall(SYS_fdatasync, fd); }, note_sync);
}
int ftruncate(int fd, off_t size) noexcept {
  return do_on_file(
      "ftruncate", fd, [&] { return syscall(SYS_ftruncate, fd, size); }, note_write);
}
int ftruncate64(int fd, off64_t size) noexcept __attribute__((alias("ftruncate")));

int rename(const char* from, const char* to) noexcept { return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char* from, int to_at, const char* to) noexcept {
  return do_rename(from_at, from, to_at, to, 0);
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  return do_rename(from_at, from, to_at, to, flags);
}

int symlinkat(const char* target, int at, const char* path) noexcept {
  return do_create(Entry(at, path), Effect::creation, "symlink", target,
                   [&] { return syscall(SYS_symlinkat, target, at, path); });
}
int symlink(const char* target, const char* path) noexcept { return symlinkat(target, AT_FDCWD, path); }
int mkdirat(int at, const char* path, mode_t mode) noexcept {
  return do_create(Entry(at, path), Effect::creation, "mkdir", "",
                   [&] { return syscall(SYS_mkdirat, at, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int at, const char* path, int flags) noexcept { return do_remove(at, path, flags); }
int unlink(const char* path) noexcept { return do_remove(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return do_remove(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {  // called by std::filesystem::remove
  struct stat status;
  const bool directory = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return do_remove(AT_FDCWD, path, directory ? AT_REMOVEDIR : 0);
}

}  // extern "C"
