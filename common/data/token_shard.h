// llm.c's token shards: a header of 256 int32, then tokens of 16 or 32 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/rank_group.h"
#include "common/io/file.h"
#include "common/io/output_file.h"

namespace stagegpt {

// Bytes per token of a vocabulary: 2, or 4 if the ids do not fit into 2.
int token_bytes(std::int64_t vocab_size);

// The hashes of a shard, computed by a rank that has read all of it.
struct ShardContent {
  std::string hash;                         // of the file, as in a manifest
  std::vector<std::uint64_t> block_hashes;  // of each block of TokenShard::kBlockBytes, including the header
};

// An open shard. It is not memory-mapped, because reading mapped memory raises SIGBUS if the file is
// truncated or the disk fails.
class TokenShard {
 public:
  static constexpr std::int64_t kMaxTokens = INT32_MAX;
  static constexpr std::int64_t kBlockBytes = 1 << 16;

  // Throws UserError, which names `flag` and the file, unless the header is valid and the file has exactly
  // the number of tokens in it. Otherwise throws as open_to_read() does.
  TokenShard(const std::filesystem::path& path, std::string_view flag);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }

  // Reads the whole file and returns its hashes. Throws UserError if a token is not below vocab_size, Stopped
  // after a stop signal, and std::runtime_error if the file cannot be read.
  ShardContent verify(std::int64_t vocab_size) const;
  // Sets the result of verify(), from this or another rank. Throws UserError if the first or last block of
  // this file does not match it.
  void expect(ShardContent content);
  // The hash of the file, after expect().
  const std::string& hash() const { return content_.hash; }

  // Reads tokens [first, first + out.size()), after expect(). Each block is compared with its hash, so damage
  // and later changes of the file are found when the tokens are used, without checking the file's time stamp.
  // Throws std::runtime_error, which names the file. May be called on any thread.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  // Reads block `index` into the beginning of `buffer`. False if its hash is not the expected one.
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

// Writes a shard. Until finish() the header is empty, so readers reject an unfinished file.
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

// Rank i % size verifies shard i and broadcasts its hashes. Every rank checks that its own file has the same
// size, first block and last block (see TokenShard::expect), and compares the other blocks when it reads
// them. So a damaged copy is found even if each rank has copies of its own. All ranks must call this with the
// same number of shards. Throws AgreedUserError, which names `flag`, if ranks have different shards. An error
// of TokenShard::verify() on one rank is thrown on all ranks.
void verify_shards(RankGroup& group, const std::vector<std::shared_ptr<TokenShard>>& shards,
                   std::int64_t vocab_size, const char* flag);

}  // namespace stagegpt
