// A library for LD_PRELOAD that injects faults into a program's calls to the file system, so that a test can
// strike at every step of a save. It is set up through the environment:
//
//   FAULT_ROOT=/abs/dir   Only calls about names and files under this directory count. Standard input, output
//                         and error never do, nor does opening a file to read it.
//   FAULT_LOG=/abs/file   Each counted call appends the line `N name path [path2]`; the name is open (to
//   write
//                         or create), close (of what was open to write), write, fsync, ftruncate, rename,
//                         symlink, unlink, rmdir or mkdir, whichever variant was called.
//   FAULT_AT=N            The N-th counted call, from 1, is struck. Without it calls are only counted.
//   FAULT_KIND            What happens then:
//     kill                The process dies by SIGKILL before the call is carried out.
//     kill_halfway        So too, but the first half of a write is carried out.
//     power_loss          So too, and all that was not made durable is lost: files written to since their
//     last
//                         fsync keep half of their bytes, and creations, renames and removals are undone
//                         where a parent directory has had no fsync since (both parents, for a rename).
//     data_loss           As power_loss, but the names stay as they are: only bytes are lost. This catches a
//                         file that was renamed before its fsync.
//     enospc              This call and all later writes and creations fail with ENOSPC.
//     eio                 This call fails with EIO.
//     short_write         A write writes half of its bytes, and says so.
//     eintr               A write fails with EINTR.
//   FAULT_KEEP=/abs/dir   For power_loss: an existing directory outside the root, on its file system, for
//   what
//                         has to be put back. What was never durable ends up there too.
//
// Where the program ends by itself before its N-th call, power is lost after it: what a program that claims
// success did not make durable is gone. So a test runs N from 1 until no signal ends the program.
//
// Calls are counted per process. Not seen: fopen (and so the creation of a file by std::ofstream, though not
// its writes), sendfile, truncate, link, mmap and _exit; O_SYNC and sync do not make anything durable here.
#undef _FORTIFY_SOURCE  // its inline open would clash with the one defined here

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// Everything is carried out by system calls made directly: there is no function to look up before the first
// call, which may come before main, and none that could come back here. Nothing is allocated for reading, nor
// for pipes and the like, to which signal handlers may write.
namespace {

constexpr int kMisuse = 99;  // the exit status where the set-up makes no sense
constexpr mode_t kLogMode = 0644;

[[noreturn]] void refuse(const std::string& problem) {
  const std::string line = "fault_injection: " + problem + "\n";
  syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
  for (;;) syscall(SYS_exit_group, kMisuse);
}

enum class Kind { none, kill, kill_halfway, power_loss, data_loss, enospc, eio, short_write, eintr };
constexpr const char* kKindNames[] = {"none",   "kill", "kill_halfway", "power_loss", "data_loss",
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
    if (realpath(value("FAULT_ROOT").c_str(), real) == nullptr) refuse("FAULT_ROOT is not there");
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

// Neither this nor the state is ever destroyed: the program may write until its very end.
const Settings& settings() {
  static const Settings& settings = *new Settings;
  return settings;
}

std::atomic<bool> dying = false;

// While power is lost names move about: what another thread finds outside the root then may not be.
void never_return_if_dying() {
  while (dying) syscall(SYS_pause);
}

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

std::string path_of(int fd) {
  char path[PATH_MAX];
  const long length = syscall(SYS_readlink, proc_path(fd).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max(length, 0L))};
}

int hold(int at, const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, at, path, O_PATH | O_CLOEXEC | flags));
}

// A name in a directory. The directory is open and its path is the kernel's, so that there is one path to a
// name whichever way the program wrote it.
struct Entry {
  Entry(int at, const char* given) {
    if (settings().root.empty() || given == nullptr) return;
    path = given;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::size_t slash = path.rfind('/');
    name = path.substr(slash + 1);  // all of it where there is no slash
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

// The path of an open file or directory if calls about it count, and nothing otherwise.
std::string path_that_counts(int fd) {
  struct stat status;
  if (settings().root.empty() || fd <= STDERR_FILENO || fstat(fd, &status) != 0) return {};
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return {};
  std::string path = path_of(fd);
  if (settings().holds(path) || path == settings().root) return path;
  never_return_if_dying();
  return {};
}

// A file or directory, held open so that it is the same one whatever happens to its names.
struct Inode {
  explicit Inode(int held) : fd(held) { fstat(fd, &status); }
  ~Inode() { syscall(SYS_close, fd); }
  Inode(const Inode&) = delete;
  Inode& operator=(const Inode&) = delete;

  bool is(const struct stat& other) const {
    return status.st_dev == other.st_dev && status.st_ino == other.st_ino;
  }
  int fd;
  struct stat status {};
};
using InodePtr = std::shared_ptr<Inode>;

struct Name {
  InodePtr directory;
  std::string text;
};

// What a name stood for before it was removed or replaced.
struct Lost {
  Name name;
  InodePtr inode;
  std::string kept;  // a hard link to it; a directory, being empty, is made anew
};

// A change of names that is not durable yet. Names are relative to directories held open, so a directory that
// is renamed takes its changes along.
struct Change {
  InodePtr inode;  // what was created or moved
  Name from, to;   // a creation has no `from`, a removal neither
  Lost lost;
  std::vector<InodePtr> awaits;  // the directories that still need an fsync
  unsigned flags = 0;            // of renameat2
};

struct State {
  pid_t process = 0;
  long count = 0, n_kept = 0;
  std::vector<std::weak_ptr<Inode>> inodes = {};
  std::vector<InodePtr> written = {};  // and not synced since
  std::vector<Change> changes = {};
};

std::mutex state_mutex;

State& state() {
  static State& state = *new State;
  return state;
}

// The one Inode for what `name` stands for; null where it does not exist.
InodePtr inode_at(int at, const std::string& name, int flags) {
  const int fd = hold(at, name.c_str(), flags);
  if (fd < 0 && errno != ENOENT) refuse("cannot hold " + name);
  if (fd < 0) return nullptr;
  auto opened = std::make_shared<Inode>(fd);
  auto& inodes = state().inodes;
  std::erase_if(inodes, [](const auto& inode) { return inode.expired(); });
  for (const auto& known : inodes) {
    if (InodePtr inode = known.lock(); inode->is(opened->status)) return inode;
  }
  inodes.push_back(opened);
  return opened;
}
InodePtr inode_at(const Entry& entry) { return inode_at(entry.parent, entry.name, O_NOFOLLOW); }

Name name_of(const Entry& entry) { return {inode_at(entry.parent, ".", O_DIRECTORY), entry.name}; }

std::string path_to_keep() {
  return settings().keep + "/" + std::to_string(getpid()) + "." + std::to_string(++state().n_kept);
}

Lost keep(const Entry& entry) {
  Lost lost{name_of(entry), inode_at(entry), ""};
  if (lost.inode == nullptr || S_ISDIR(lost.inode->status.st_mode)) return lost;
  lost.kept = path_to_keep();
  if (linkat(entry.parent, entry.name.c_str(), AT_FDCWD, lost.kept.c_str(), 0) == 0) return lost;
  refuse("FAULT_KEEP cannot hold a hard link to " + entry.path);
}

void put_back(const Lost& lost) {
  const int at = lost.name.directory->fd;
  const char* name = lost.name.text.c_str();
  struct stat& status = lost.inode->status;
  if (!S_ISDIR(status.st_mode)) {
    linkat(AT_FDCWD, lost.kept.c_str(), at, name, 0);
  } else if (syscall(SYS_mkdirat, at, name, status.st_mode & ALLPERMS) == 0) {
    // Earlier changes in it have to find the new one.
    syscall(SYS_close, lost.inode->fd);
    lost.inode->fd = hold(at, name, O_DIRECTORY);
    fstat(lost.inode->fd, &status);
  }
}

void undo(const Change& change) {
  if (change.inode != nullptr) {
    const int at = change.to.directory->fd;
    const char* name = change.to.text.c_str();
    struct stat there;
    // Something else is there when a later change was made durable and this one was not.
    if (fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) != 0 || !change.inode->is(there)) return;
    // What was created goes with its contents, durable or not: nothing leads to them any more.
    const bool created = change.from.directory == nullptr;
    const std::string back = created ? path_to_keep() : change.from.text;
    syscall(SYS_renameat2, at, name, created ? AT_FDCWD : change.from.directory->fd, back.c_str(),
            change.flags);
  }
  if (change.lost.inode != nullptr) put_back(change.lost);
}

void lose_power() {
  State& now = state();
  for (const InodePtr& file : now.written) {
    if (fstat(file->fd, &file->status) == 0) truncate(proc_path(file->fd).c_str(), file->status.st_size / 2);
  }
  now.written.clear();
  std::for_each(now.changes.rbegin(), now.changes.rend(), undo);
  now.changes.clear();
}

void note_write(int fd) {
  if (!settings().loses_power()) return;
  InodePtr file = inode_at(AT_FDCWD, proc_path(fd), 0);
  std::erase(state().written, file);
  state().written.push_back(file);
}

void note_sync(int fd) {
  if (!settings().loses_power()) return;
  const InodePtr synced = inode_at(AT_FDCWD, proc_path(fd), 0);
  std::erase(state().written, synced);
  std::erase_if(state().changes, [&](Change& change) {
    std::erase(change.awaits, synced);
    return change.awaits.empty();
  });
}

[[noreturn]] void die() {
  for (;;) syscall(SYS_kill, getpid(), SIGKILL);
}

__attribute__((destructor)) void lose_power_at_exit() {
  const std::lock_guard lock(state_mutex);
  // A forked child that has made no counted call yet has its parent's records, which are not its own to lose.
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

// Counts a call and says how much of it to carry out. The caller holds the mutex until that is done, so that
// what is recorded is in the order in which it happened.
Fate count(Effect effect, const std::string& name, const std::string& path, const std::string& path2 = "") {
  if (state().process != getpid()) state() = State{.process = getpid()};
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

// Other calls about an open file. `note(fd)` records that it succeeded.
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
  state().changes.push_back({inode_at(entry), {}, to, {}, {to.directory}});
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
  if (result == 0) state().changes.push_back({nullptr, {}, {}, lost, {lost.name.directory}});
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
  // Between two links to one file rename does nothing.
  if (result == 0 && change.inode != change.lost.inode) state().changes.push_back(change);
  return result;
}

// The bit that sets O_TMPFILE apart from O_DIRECTORY: such an open has a mode too.
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
int remove(const char* path) noexcept {  // which std::filesystem::remove calls
  struct stat status;
  const bool directory = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return do_remove(AT_FDCWD, path, directory ? AT_REMOVEDIR : 0);
}

}  // extern "C"
