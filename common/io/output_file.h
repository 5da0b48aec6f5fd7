// A file that is written from its beginning to its end, however large, at the speed of the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <future>
#include <span>

#include "common/io/file.h"

namespace stagegpt {

// Bytes are gathered into blocks. While one is filled, the one before is written past the page cache
// (O_DIRECT), where the file system can: what nobody is going to read takes no memory from those who read.
// Failures, such as a full disk, throw std::runtime_error that names the file, from this call or a later one.
class OutputFile {
 public:
  // Large enough that a disk is busy with one block at a time.
  static constexpr std::size_t kBlock = std::size_t{8} << 20;
  static constexpr std::size_t kSmallBlock = std::size_t{64} << 10;

  // Creates the file, or empties it.
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // Goes back to the beginning: what is written next replaces what is there.
  void rewind();
  // Returns when the bytes are on the disk. What is written and not synced is lost.
  void sync();

 private:
  // Bytes that filling_ has room for.
  std::size_t capacity() const { return leaving_ ? kBlock : kSmallBlock; }
  void make_room();
  void write_full_block();
  // Returns when all bytes are written.
  void write_rest();

  std::filesystem::path path_;
  FileDescriptor fd_;
  // Most files are small: the two blocks come when there is more to write.
  AlignedBlock filling_ = make_aligned_block(kSmallBlock), leaving_{nullptr, &std::free};
  std::size_t filled_ = 0;      // bytes of filling_
  std::future<void> departed_;  // leaving_ is written; the last member, since its end waits for that
};

}  // namespace stagegpt
