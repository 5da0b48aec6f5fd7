// Windows of a long sequence of tokens, shuffled, as samples.
//
// Samples are numbered over the whole run. Sample i belongs to epoch i / windows(); within an epoch every
// window comes once, in an order that depends on (seed, epoch) alone. So a position is one number, any sample
// is found in O(1), and the order does not depend on batch size or ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/token_sequence.h"

namespace stagegpt {

// ids and targets are (B,T); targets are the ids one token later.
struct Batch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;
};

class DataLoader {
 public:
  // Windows of `seq_len` tokens and the one behind. There must be at least seq_len + 1 tokens.
  DataLoader(TokenSequence tokens, std::int64_t seq_len, std::uint64_t seed);

  // Samples [first, first + count), shuffled.
  Batch shuffled(std::int64_t first, std::int64_t count) const;
  // These windows of the text, which are numbered in its order, from its beginning, without overlap: for
  // validation. There are (tokens - 1) / seq_len, rounded down.
  Batch in_order(std::span<const std::int64_t> windows) const;

  const TokenSequence& tokens() const { return tokens_; }
  std::int64_t seq_len() const { return seq_len_; }
  // Windows in an epoch. One fewer than fit, where there are several: each epoch begins at another offset.
  std::int64_t windows() const { return windows_; }
  std::int64_t windows_in_order() const { return (tokens_.size() - 1) / seq_len_; }

 private:
  std::int64_t shuffled_start(std::int64_t sample) const;
  void append(Batch& batch, std::int64_t start) const;

  TokenSequence tokens_;
  std::int64_t seq_len_;
  std::int64_t windows_;
  std::uint64_t seed_;
};

}  // namespace stagegpt
