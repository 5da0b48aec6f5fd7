// llm.c's token shards: a header of 256 int32, then tokens of 16 or 32 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "common/file.h"
#include "common/output_file.h"

namespace stagegpt {

using TokenSpan = std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>>;

// Bytes that a token of a vocabulary takes: 2, or 4 where its ids need them.
int token_bytes(std::int64_t vocab_size);

// A shard, mapped into memory.
class TokenShard {
 public:
  static constexpr std::int64_t kMaxTokens = INT32_MAX;

  // Throws UserError, naming `flag` and the file, unless the header is right and the file has exactly the
  // tokens that it announces.
  TokenShard(const std::filesystem::path& path, std::string_view flag);

  TokenSpan tokens() const;
  std::int64_t size() const { return size_; }

  // Reads all of the file and returns its hash. Throws UserError where a token is not below vocab_size,
  // Stopped when a signal has come.
  std::string verify(std::int64_t vocab_size) const;
  // Throws UserError when the file is not what was opened: a mapping of it can no longer be trusted.
  void require_unchanged() const;

 private:
  std::filesystem::path path_;
  std::string flag_;
  MappedFile file_;
  FileIdentity opened_;
  std::int64_t size_ = 0;
  int token_bytes_ = 2;
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
