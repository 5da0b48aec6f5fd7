// Files: read through memory, written for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

// Written from the front, except where write_at() goes back. Failures, such as a full disk, throw
// std::runtime_error that names the file.
class OutputFile {
 public:
  // Creates the file, or empties it.
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::span<const std::byte> bytes);
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  // Returns when the bytes are on the disk.
  void sync();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  FileDescriptor fd_;
};

// A whole file, on the disk when it returns.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// Makes what was created in or renamed into a directory last.
void sync_directory(const std::filesystem::path& path);

// XXH3 (128 bits), in hexadecimal: of bytes, and of a file's.
std::string content_hash(std::span<const std::byte> bytes);
std::string content_hash(const std::filesystem::path& path);

}  // namespace stagegpt
