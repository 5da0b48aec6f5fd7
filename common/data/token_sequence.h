// A long sequence of tokens, stored in memory or in any number of shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/data/token_shard.h"

namespace stagegpt {

// Identifies tokens: the hash of their ids, or the hash of their shard files' hashes and ranges.
struct TokenIdentity {
  enum class Of : std::uint8_t { ids, shards };

  Of of = Of::ids;
  std::string hash;

  bool operator==(const TokenIdentity&) const = default;
};

// Copies share the tokens.
class TokenSequence {
 public:
  TokenSequence() = default;
  TokenSequence(const std::vector<std::int32_t>& ids);

  // Appends the tokens of a shard whose content is known (TokenShard::expect()).
  void append(std::shared_ptr<const TokenShard> shard);
  // Appends the tokens of another sequence.
  void append(const TokenSequence& tokens);
  // Appends ids. They are stored with as many bytes per token as the vocabulary needs.
  void append(std::span<const std::int32_t> ids, std::int64_t vocab_size);

  std::int64_t size() const { return size_; }
  // Tokens [first, first + out.size()). Throws as TokenShard::read() does.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  std::vector<std::int32_t> read(std::int64_t first, std::int64_t count) const;
  // Tokens [first, first + count) as a sequence of their own.
  TokenSequence slice(std::int64_t first, std::int64_t count) const;
  // If all tokens are in shards, it is computed without reading them.
  TokenIdentity identity() const;

 private:
  using Tokens =
      std::variant<std::shared_ptr<const TokenShard>, std::shared_ptr<const std::vector<std::uint16_t>>,
                   std::shared_ptr<const std::vector<std::uint32_t>>>;
  struct Segment {
    std::int64_t first = 0;  // position of its first token in the sequence
    std::int64_t size = 0;
    std::int64_t offset = 0;  // position of its first token in `tokens`
    Tokens tokens;
  };

  void append(Segment segment);
  // Tokens [from, from + out.size()) of a segment.
  static void copy(const Segment& segment, std::int64_t from, std::span<std::int32_t> out);

  std::vector<Segment> segments_;
  std::int64_t size_ = 0;
};

// The hash of the ids in order. It does not depend on how they are stored. Throws as read() does.
std::string hash_of_tokens(const TokenSequence& tokens);

}  // namespace stagegpt
