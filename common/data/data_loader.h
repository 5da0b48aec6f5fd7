// Draws samples from a token sequence: windows of seq_len tokens, in shuffled order.
//
// Samples are numbered over the whole run. Sample i belongs to epoch i / windows(). An epoch contains each
// window once, in an order that depends on (seed, epoch) only. So the position is one number, any sample is
// computed in O(1), and the order does not depend on the batch size or the number of ranks.
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
  // A window has `seq_len` tokens and the token after them, the last target. `tokens` must have at least
  // seq_len + 1 tokens.
  DataLoader(TokenSequence tokens, std::int64_t seq_len, std::uint64_t seed);

  // Samples [first, first + count), shuffled.
  Batch shuffled(std::int64_t first, std::int64_t count) const;
  const TokenSequence& tokens() const { return tokens_; }
  std::int64_t seq_len() const { return seq_len_; }
  // The number of windows in an epoch. It is one less than fit (but at least 1), because each epoch begins at
  // another offset.
  std::int64_t windows() const { return windows_; }
  // The number of windows that do not overlap, from the beginning of the sequence on.
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
