// A library for LD_PRELOAD: one read of one file fails with EIO, once, as with a temporary error of a disk or
// a network file system. It is configured by environment variables:
//
//   READ_FAULT_FILE=/abs/file   Only reads of this file count (with the kernel's path).
//   READ_FAULT_AT=N             The N-th read in a process, from 1, fails,
//   READ_FAULT_MARK=/abs/file   unless this file exists. It is created at the fault, so that a restarted
//                               program can read.
#undef _FORTIFY_SOURCE  // its inline functions would clash with those defined here

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool fails(int fd) {
  static std::atomic<long> count = 0;
  const char* file = getenv("READ_FAULT_FILE");
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const long length = file == nullptr ? -1 : syscall(SYS_readlink, link.c_str(), path, sizeof path);
  if (length < 0 || std::string(path, static_cast<std::size_t>(length)) != file) return false;
  if (++count != atol(getenv("READ_FAULT_AT"))) return false;
  // Only the process that creates the mark fails.
  const int mark = static_cast<int>(syscall(SYS_openat, AT_FDCWD, getenv("READ_FAULT_MARK"),
                                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (mark < 0) return false;
  syscall(SYS_close, mark);
  errno = EIO;
  return true;
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* bytes, size_t size) { return fails(fd) ? -1 : syscall(SYS_read, fd, bytes, size); }
ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  return fails(fd) ? -1 : syscall(SYS_pread64, fd, bytes, size, offset);
}
ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) __attribute__((alias("pread")));

}  // extern "C"
