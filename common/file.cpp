#include "common/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "common/error.h"

namespace stagegpt {
namespace {

[[noreturn]] void fail_to_write(const std::filesystem::path& path) {
  throw std::runtime_error(concat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (is_open()) close(fd_);
}

MappedFile::MappedFile(const std::filesystem::path& path, std::string_view flag) {
  // Does not wait for a pipe's writer.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) user_error(flag, ": cannot open ", path, ": ", std::strerror(errno));
  struct stat info {};
  const bool known = fstat(fd.get(), &info) == 0;
  const auto size = static_cast<std::size_t>(info.st_size);
  const bool mappable = known && S_ISREG(info.st_mode) && size > 0;
  void* data = mappable ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0) : nullptr;
  const int map_error = errno;
  if (known && S_ISDIR(info.st_mode)) user_error(flag, ": ", path, " is a directory, expected a file");
  if (!known || !S_ISREG(info.st_mode)) user_error(flag, ": ", path, " is not a regular file");
  if (data == MAP_FAILED) user_error(flag, ": cannot read ", path, ": ", std::strerror(map_error));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void write_fully(const FileDescriptor& file, std::span<const std::byte> bytes,
                 const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

OutputFile::OutputFile(const std::filesystem::path& path)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) fail();
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_fully(fd_, bytes, path_);
  start_writing_back(bytes.size());
}

// The disk works while the next bytes are made, not only when sync() waits for it. A hint: it may fail.
void OutputFile::start_writing_back(std::size_t more) {
  constexpr std::size_t kEnough = std::size_t{16} << 20;
  waiting_ += more;
  if (waiting_ < kEnough) return;
  sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  waiting_ = 0;
}

void OutputFile::rewind() {
  if (lseek(fd_.get(), 0, SEEK_SET) != 0) fail();
}

void OutputFile::sync() {
  if (fsync(fd_.get()) != 0) fail();
}

void OutputFile::fail() const { fail_to_write(path_); }

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(bytes)));
  file.sync();
}

void replace_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  write_file(temporary, bytes);
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
  if (stat(path.c_str(), &info) != 0) user_error(flag, ": cannot read ", path, ": ", std::strerror(errno));
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

void read_blocks(const std::filesystem::path& path,
                 const std::function<void(std::span<const std::byte>)>& use) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::runtime_error(concat("cannot read ", path, ": ", std::strerror(errno)));
  std::vector<std::byte> block(kBlock);
  while (const std::size_t read = std::fread(block.data(), 1, block.size(), file.get())) {
    use(std::span(block).first(read));
  }
  if (std::ferror(file.get())) throw std::runtime_error(concat("cannot read ", path));
}

}  // namespace stagegpt
