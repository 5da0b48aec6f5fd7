// Files: read through memory, written for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace stagegpt {

// An open file's number, closed at the end.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Mapped read-only. The views end with the object.
class MappedFile {
 public:
  // Throws UserError, naming `flag` and the file, when it is missing, not a regular file or unreadable.
  MappedFile(const std::filesystem::path& path, std::string_view flag);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const std::byte> bytes_;
};

// Writes all bytes where the file stands. Throws std::runtime_error that names `path`, on a full disk for
// one.
void write_fully(const FileDescriptor& file, std::span<const std::byte> bytes,
                 const std::filesystem::path& path);

// Failures, such as a full disk, throw std::runtime_error that names the file.
class OutputFile {
 public:
  // Creates the file, or empties it.
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::span<const std::byte> bytes);
  // Goes back to the beginning: what is written next replaces what is there.
  void rewind();
  // Returns when the bytes are on the disk.
  void sync();

 private:
  void start_writing_back(std::size_t more);
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::size_t waiting_ = 0;  // bytes that the disk has not been asked to take
};

// A whole file, on the disk when it returns. Throws std::runtime_error that names it.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// The same under a name that has the old content or the new, whenever the machine stops.
void replace_file(const std::filesystem::path& path, std::string_view bytes);
// Creates a directory and those above it that are missing, for good. Throws std::runtime_error that names it.
void make_directories(const std::filesystem::path& path);
// Makes what was created in or renamed into a directory last. Throws std::runtime_error that names it.
void sync_directory(const std::filesystem::path& path);

// Whether there is anything under a name that can be looked at.
bool file_exists(const std::filesystem::path& path);

// Which file a name leads to, and whether it has been changed: by its time stamps, not by its content.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Throws UserError, naming `flag` and the file, where there is none.
FileIdentity file_identity(const std::filesystem::path& path, std::string_view flag);

// Passes a file, block after block, to use(): without a mapping, which a file that shrinks makes deadly.
// Throws std::runtime_error that names the file when it cannot be read.
void read_blocks(const std::filesystem::path& path,
                 const std::function<void(std::span<const std::byte>)>& use);

}  // namespace stagegpt
