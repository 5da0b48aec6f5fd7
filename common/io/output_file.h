// A file of any size that is written sequentially at the speed of the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <future>
#include <span>
#include <string>
#include <string_view>

#include "common/io/file.h"

namespace stagegpt {

// Bytes are collected into blocks. While one block is filled, a thread writes the block before it. If the
// file system supports O_DIRECT, blocks bypass the page cache, so that files which are not read soon do not
// displace others. Errors, such as a full disk, throw std::runtime_error that names the file, from the same
// call or a later one.
class OutputFile {
 public:
  // Large enough that writing one block at a time keeps a disk busy.
  static constexpr std::size_t kBlock = std::size_t{8} << 20;
  static constexpr std::size_t kSmallBlock = std::size_t{64} << 10;

  // Creates the file, or truncates it.
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // Moves to the beginning of the file: the next write() overwrites what is there.
  void rewind();
  // Returns when all bytes are on the disk. Bytes that are not synced may be lost.
  void sync();

 private:
  // The size of filling_ in bytes.
  std::size_t capacity() const { return writing_ ? kBlock : kSmallBlock; }
  void grow();
  void write_full_block();
  // Writes what is left, and waits for the block that is being written.
  void write_rest();

  std::filesystem::path path_;
  FileDescriptor fd_;
  // Most files are small: the two large blocks are allocated only when they are needed.
  AlignedBlock filling_ = make_aligned_block(kSmallBlock), writing_{nullptr, &std::free};
  std::size_t filled_ = 0;  // bytes in filling_
  // Ready when writing_ has been written. The last member, because its destructor waits for that write.
  std::future<void> write_done_;
};

// A log file to which a long job appends. Write errors, such as a full disk, do not end the job.
class AppendFile {
 public:
  // Opens a file for appending, or creates it. Throws std::runtime_error that names it.
  explicit AppendFile(const std::filesystem::path& path);

  // Appends bytes. Returns false if not all of them could be written now, for example on a full disk; errno
  // has the reason. The rest is kept and written by the next call.
  bool add(std::string_view bytes);
  // Returns when all bytes are on the disk. Throws std::runtime_error if they cannot be written.
  void sync();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::string unwritten_;
};

}  // namespace stagegpt
