// Files: read through memory, written for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

// Whether an error of opening a file, an errno, is one that its user can see to.
bool is_users_to_mend(int error);
// Throws that a file which `flag` names cannot be opened, because of `error`, an errno. A UserError where
// the user can see to it: the file is missing, say, or may not be read. Where the machine is at fault (a
// disk, a network file system that is gone for a moment, too many open files) it is a std::runtime_error: the
// same command may succeed later.
[[noreturn]] void fail_to_open(const std::filesystem::path& path, std::string_view flag, int error);

// A regular file, open for reading. Throws UserError for what is none, otherwise as fail_to_open() does.
// Where the process has too many open files, its limit is raised as far as it may be.
FileDescriptor open_to_read(const std::filesystem::path& path, std::string_view flag);
// Bytes of an open file.
std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path, std::string_view flag);
// Reads from `offset` on until `bytes` is full or the file ends; how much that was. Throws std::runtime_error
// that names `path`.
std::size_t read_at(const FileDescriptor& file, std::int64_t offset, std::span<std::byte> bytes,
                    const std::filesystem::path& path);

// Mapped read-only. The views end with the object.
class MappedFile {
 public:
  // Throws as open_to_read() does.
  MappedFile(const std::filesystem::path& path, std::string_view flag);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<const std::byte> bytes_;
};

// Throws std::runtime_error that names the file and what errno says.
[[noreturn]] void fail_to_write(const std::filesystem::path& path);

// Writes all bytes where the file stands; past the page cache, in a file opened so, what can be. Throws
// std::runtime_error that names `path`, on a full disk for one.
void write_fully(const FileDescriptor& file, std::span<const std::byte> bytes,
                 const std::filesystem::path& path);

// A whole file, on the disk when it returns. Throws std::runtime_error that names it.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// The same under a name that has the old content or the new, whenever the machine stops.
void replace_file(const std::filesystem::path& path, std::string_view bytes);
// The same for what write() writes into a file that it is given the name of, for good.
void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& temporary)>& write);
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
// Throws as fail_to_open() does.
FileIdentity file_identity(const std::filesystem::path& path, std::string_view flag);

// Memory as O_DIRECT wants it for the usual disks: it begins at a multiple of 4096 bytes.
using AlignedBlock = std::unique_ptr<std::byte[], decltype(&std::free)>;
AlignedBlock make_aligned_block(std::size_t bytes);

// Whether a file's content is left in the page cache for others, or passes it by: that of a large file, where
// the file system can.
enum class PageCache { use, avoid };

// Passes a file, block after block, to use(): without a mapping, which a file that shrinks makes deadly.
// Throws std::runtime_error that names the file when it cannot be read.
void read_blocks(const std::filesystem::path& path, PageCache cache,
                 const std::function<void(std::span<const std::byte>)>& use);

}  // namespace stagegpt
