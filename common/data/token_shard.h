// llm.c's token shards: a header of 256 int32, then tokens of 16 or 32 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/io/file.h"
#include "common/io/output_file.h"

namespace stagegpt {

// Bytes that a token of a vocabulary takes: 2, or 4 where its ids need them.
int token_bytes(std::int64_t vocab_size);

// What a shard holds, as somebody found who has read all of it.
struct ShardContent {
  std::string hash;                         // of the file, as in a manifest
  std::vector<std::uint64_t> block_hashes;  // of its blocks of TokenShard::kBlockBytes, the header among them
};

// A shard, kept open. It is not mapped: a file that shrinks, or a disk that fails, ends a program which reads
// mapped memory by SIGBUS.
class TokenShard {
 public:
  static constexpr std::int64_t kMaxTokens = INT32_MAX;
  static constexpr std::int64_t kBlockBytes = 1 << 16;

  // Throws UserError, naming `flag` and the file, unless the header is right and the file has exactly the
  // tokens that it announces; otherwise as open_to_read() does.
  TokenShard(const std::filesystem::path& path, std::string_view flag);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }

  // Reads all of the file. Throws UserError where a token is not below vocab_size, Stopped when a signal has
  // come, std::runtime_error where the file cannot be read.
  ShardContent verify(std::int64_t vocab_size) const;
  // Tells what verify() has found, here or on another rank. Throws UserError where the first or last block of
  // this file differs from it.
  void expect(ShardContent content);
  // The file's, once it is known.
  const std::string& hash() const { return content_.hash; }

  // Tokens [first, first + out.size()), once the content is known: what is read is compared with it, block by
  // block. So damage, and changes that somebody makes meanwhile, are found when they are used, without asking
  // the file system for a file's time stamp again and again. Throws std::runtime_error, naming the file. On
  // any thread.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  // Block `index`, into the beginning of `buffer`. False where it is not what was expected.
  bool read_block(std::int64_t index, std::span<std::byte> buffer, std::span<const std::byte>& block) const;
  std::int64_t blocks() const { return (file_bytes_ + kBlockBytes - 1) / kBlockBytes; }

  std::filesystem::path path_;
  std::string flag_;
  FileDescriptor file_;
  std::int64_t file_bytes_ = 0;
  std::int64_t size_ = 0;
  int token_bytes_ = 2;
  ShardContent content_;
};

// Writes a shard. Until finish() the file has no header, so that nobody takes it for one.
class TokenShardWriter {
 public:
  TokenShardWriter(const std::filesystem::path& path, int token_bytes);

  void append(std::span<const std::int32_t> ids);
  std::int64_t size() const { return size_; }
  // Returns when the file is on the disk.
  void finish();

 private:
  OutputFile file_;
  int token_bytes_;
  std::int64_t size_ = 0;
};

}  // namespace stagegpt
