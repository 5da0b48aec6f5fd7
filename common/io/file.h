// Files: reading, memory mapping, and writing that survives a crash.
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

// Owns a file descriptor and closes it.
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

// Whether an errno of opening a file is one that the user can correct.
bool is_users_mistake(int error);
// Throws the error that a file named by `flag` cannot be opened; `error` is the errno. It is a UserError if
// the user can correct it, for example a missing file or missing permission. It is a std::runtime_error for a
// fault of the machine (a disk, a network file system that is briefly unavailable, too many open files): the
// same command may succeed later.
[[noreturn]] void fail_to_open(const std::filesystem::path& path, std::string_view flag, int error);

// Opens a regular file for reading. Throws UserError if it is not a regular file, otherwise as fail_to_open()
// does. If the process has too many open files, its limit is raised to the hard limit first.
FileDescriptor open_to_read(const std::filesystem::path& path, std::string_view flag);
// The size of an open file in bytes.
std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path, std::string_view flag);
// Reads from `offset` until `bytes` is full or the file ends, and returns the number of bytes read. Throws
// std::runtime_error that names `path`.
std::size_t read_at(const FileDescriptor& file, std::int64_t offset, std::span<std::byte> bytes,
                    const std::filesystem::path& path);

// A file that is memory-mapped read-only. The views are valid while the object lives.
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

// Throws std::runtime_error with the file's name and the reason in errno.
[[noreturn]] void fail_to_write(const std::filesystem::path& path);

// Writes all bytes at the current position of the file. With O_DIRECT, unaligned bytes go through the page
// cache. Throws std::runtime_error that names `path`, for example on a full disk.
void write_fully(const FileDescriptor& file, std::span<const std::byte> bytes,
                 const std::filesystem::path& path);

// Writes a whole file, which is on the disk when the call returns. Throws std::runtime_error that names it.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// Writes a file atomically: after a crash the file has either the old or the new content.
void replace_file(const std::filesystem::path& path, std::string_view bytes);
// Replaces a file atomically by what write() writes. write() gets a temporary name, and must leave the
// content on the disk.
void replace_file(const std::filesystem::path& path,
                  const std::function<void(const std::filesystem::path& temporary)>& write);
// Creates a directory and its missing parents, and syncs them to the disk. Throws std::runtime_error that
// names it.
void make_directories(const std::filesystem::path& path);
// Syncs a directory, so that files created in it or renamed into it survive a crash. Throws
// std::runtime_error that names it.
void sync_directory(const std::filesystem::path& path);

// Whether a path exists and can be accessed.
bool file_exists(const std::filesystem::path& path);

// Identifies a file and its version: device, inode, size and modification time. The content is not compared.
struct FileIdentity {
  std::uint64_t device = 0, inode = 0;
  std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Throws as fail_to_open() does.
FileIdentity file_identity(const std::filesystem::path& path, std::string_view flag);

// Memory aligned to 4096 bytes, as O_DIRECT requires on common disks.
using AlignedBlock = std::unique_ptr<std::byte[], decltype(&std::free)>;
AlignedBlock make_aligned_block(std::size_t bytes);

// Whether reading leaves a file's content in the page cache for later readers, or bypasses the cache. Only
// large files bypass it, and only if the file system supports that.
enum class PageCache { use, avoid };

// Passes the blocks of a file to use(), in order. The file is not memory-mapped, because reading a mapping of
// a file that has shrunk ends the process. Throws std::runtime_error that names the file if it cannot be
// read.
void read_blocks(const std::filesystem::path& path, PageCache cache,
                 const std::function<void(std::span<const std::byte>)>& use);

// For the file of a result that takes long to compute, so that a mistake is refused at the start. Throws
// UserError, naming the flag, if the file cannot be written by replace_file(), or if a file of this
// name exists that is not ours; `kind` says what a file of ours is: "a profile". Ours are those that have
// `mark` among their first 64 KiB; an empty file may be replaced, too.
void require_result_file(const std::filesystem::path& file, const char* flag, const char* kind,
                         std::string_view mark);

}  // namespace stagegpt
