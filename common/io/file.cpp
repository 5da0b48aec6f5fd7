#include "common/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

#include "common/base/error.h"
#include "common/io/mapping_faults.h"
#include "common/io/output_file.h"

namespace stagegpt {
namespace {

// Turns O_DIRECT off for an open file, as the unaligned end of a file requires. Returns false if it was off
// already.
bool leave_direct(const FileDescriptor& file) {
  const int flags = fcntl(file.get(), F_GETFL);
  return (flags & O_DIRECT) != 0 && fcntl(file.get(), F_SETFL, flags & ~O_DIRECT) == 0;
}

// Raises the limit of open files to the hard limit. Returns false if it was there already.
bool raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (is_open()) close(fd_);
}

bool is_users_mistake(int error) {
  constexpr int kUsers[] = {ENOENT, ENOTDIR, EACCES, EPERM, EISDIR, ELOOP, ENAMETOOLONG, ENXIO, ENODEV};
  return std::ranges::find(kUsers, error) != std::end(kUsers);
}

void fail_to_open(const std::filesystem::path& path, std::string_view flag, int error) {
  const std::string what = concat(flag, ": cannot open ", path, ": ", std::strerror(error));
  if (is_users_mistake(error)) throw UserError(what);
  throw std::runtime_error(what);
}

FileDescriptor open_to_read(const std::filesystem::path& path, std::string_view flag) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const auto open_now = [&] { return FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); };
  FileDescriptor file = open_now();
  if (!file.is_open() && errno == EMFILE && raise_file_limit()) file = open_now();
  if (!file.is_open()) fail_to_open(path, flag, errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) fail_to_open(path, flag, errno);
  if (S_ISDIR(info.st_mode)) user_error(flag, ": ", path, " is a directory, expected a file");
  if (!S_ISREG(info.st_mode)) user_error(flag, ": ", path, " is not a regular file");
  return file;
}

std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path, std::string_view flag) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) fail_to_open(path, flag, errno);
  return info.st_size;
}

std::size_t read_at(const FileDescriptor& file, std::int64_t offset, std::span<std::byte> bytes,
                    const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pread(file.get(), bytes.data() + done, bytes.size() - done,
                            static_cast<off_t>(offset + static_cast<std::int64_t>(done)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw std::runtime_error(concat("cannot read ", path, ": ", std::strerror(errno)));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view flag) {
  const FileDescriptor file = open_to_read(path, flag);
  const auto size = static_cast<std::size_t>(size_of(file, path, flag));
  if (size == 0) return;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail_to_open(path, flag, errno);
  bytes_ = {static_cast<const std::byte*>(data), size};
  note_mapping(bytes_, path);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget_mapping(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void fail_to_write(const std::filesystem::path& path) {
  throw std::runtime_error(concat("cannot write ", path, ": ", std::strerror(errno)));
}

void write_fully(const FileDescriptor& file, std::span<const std::byte> bytes,
                 const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && (errno == EINTR || (errno == EINVAL && leave_direct(file)))) continue;
    if (written < 0) fail_to_write(path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(bytes)));
  file.sync();
}

void replace_file(const std::filesystem::path& path, std::string_view bytes) {
  replace_file(path, [&](const std::filesystem::path& temporary) { write_file(temporary, bytes); });
}

void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& temporary)>& write) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  try {
    write(temporary);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);  // it may have filled the disk
    throw;
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_to_write(path);
  sync_directory(std::filesystem::absolute(path).parent_path());
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return;
  const std::filesystem::path parent = path.parent_path();
  make_directories(parent);
  if (std::filesystem::create_directory(path, error)) sync_directory(parent.empty() ? "." : parent);
  if (error) throw std::runtime_error(concat("cannot create ", path, ": ", error.message()));
}

void sync_directory(const std::filesystem::path& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open() || fsync(fd.get()) != 0) fail_to_write(path);
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

FileIdentity file_identity(const std::filesystem::path& path, std::string_view flag) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) fail_to_open(path, flag, errno);
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

AlignedBlock make_aligned_block(std::size_t bytes) {
  constexpr std::size_t kAlignment = 4096;
  AlignedBlock block(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)), &std::free);
  if (!block) throw std::bad_alloc();
  return block;
}

void read_blocks(const std::filesystem::path& path, PageCache cache,
                 const std::function<void(std::span<const std::byte>)>& use) {
  constexpr std::size_t kBlock = std::size_t{4} << 20, kSmallBlock = std::size_t{64} << 10;
  const auto fail = [&] {
    throw std::runtime_error(concat("cannot read ", path, ": ", std::strerror(errno)));
  };
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) fail();
  struct stat info {};
  // Small files are read through the page cache, which is faster. So are all files if the file system has no
  // O_DIRECT.
  const bool is_large = fstat(file.get(), &info) == 0 && info.st_size >= static_cast<off_t>(kBlock);
  if (cache == PageCache::avoid && is_large) fcntl(file.get(), F_SETFL, O_DIRECT);
  const std::size_t size = is_large ? kBlock : kSmallBlock;
  const AlignedBlock block = make_aligned_block(size);
  while (true) {
    const ssize_t n = read(file.get(), block.get(), size);
    if (n < 0 && (errno == EINTR || (errno == EINVAL && leave_direct(file)))) continue;
    if (n < 0) fail();
    if (n == 0) return;
    use(std::span(block.get(), static_cast<std::size_t>(n)));
  }
}

namespace fs = std::filesystem;

void require_result_file(const fs::path& file, const char* flag, const char* kind, std::string_view mark) {
  const auto is_own = [&] {
    std::string begin(std::size_t{1} << 16, '\0');
    std::ifstream in(file, std::ios::binary);
    if (!in) return false;
    in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    return in.gcount() == 0 || begin.find(mark) != begin.npos;
  };
  std::error_code ignored;
  const bool exists = fs::exists(file, ignored);
  if (exists && !fs::is_regular_file(file, ignored))
    user_error(flag, ": ", file, " exists and is not a regular file");
  if (exists && !is_own()) user_error(flag, ": ", file, " exists and is not ", kind, "; it is not replaced");
  if (!file.has_filename()) user_error(flag, ": expected a file, not ", file);
  fs::path temporary = file;
  temporary += ".tmp";  // as replace_file() will
  const FileDescriptor created(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!created.is_open() && errno == EEXIST) return;
  if (!created.is_open()) fail_to_open(file, flag, errno);
  unlink(temporary.c_str());
}

}  // namespace stagegpt
