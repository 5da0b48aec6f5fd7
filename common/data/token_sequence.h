// A long sequence of tokens, wherever they lie: in memory, or in any number of mapped shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/data/token_shard.h"

namespace stagegpt {

// Copies share the tokens.
class TokenSequence {
 public:
  TokenSequence() = default;
  TokenSequence(const std::vector<std::int32_t>& ids);

  void append(std::shared_ptr<const TokenShard> shard);
  // As many bytes a token as the vocabulary needs.
  void append(std::span<const std::int32_t> ids, std::int64_t vocab_size);

  std::int64_t size() const { return size_; }
  // Tokens [first, first + out.size()). Throws UserError when a shard has changed since it was opened.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  std::vector<std::int32_t> read(std::int64_t first, std::int64_t count) const;
  // Tokens [first, first + count) as a sequence of their own.
  TokenSequence slice(std::int64_t first, std::int64_t count) const;

 private:
  struct Segment {
    std::int64_t first = 0;  // of its tokens, in the sequence
    std::int64_t size = 0;
    TokenSpan tokens;
    std::shared_ptr<const void> owner;
    const TokenShard* shard = nullptr;  // of its file, if it has one
  };

  void append(Segment segment);

  std::vector<Segment> segments_;
  std::int64_t size_ = 0;
};

// Hash of the ids in their order, however they are stored. Throws as read() does.
std::string content_hash(const TokenSequence& tokens);

}  // namespace stagegpt
