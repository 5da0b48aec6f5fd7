// Draws samples from a token sequence: windows of seq_len tokens, in shuffled order.
//
// Samples are numbered over the whole run. Sample i belongs to epoch i / windows(). An epoch contains each
// window once, in an order that depends on (seed, epoch) only. So the position is one number, any sample is
// computed in O(1), and the order does not depend on the batch size or the number of ranks.
//
// With a mixture, samples are divided into blocks of N = kMixtureBlock. In each block, share_k samples belong
// to part k of the tokens. Sample i is number p = π(i mod N) of block b = i div N, where the permutation π of
// [0, N) depends on (seed, b). With F_k = share_0 + … + share_(k-1) and F_k <= p < F_(k+1), it is sample
// b·share_k + p - F_k of part k, which has epochs of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/mixture.h"
#include "common/data/token_sequence.h"

namespace stagegpt {

// ids and targets are (B,T); targets are the ids one token later.
struct Batch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;
};

class DataLoader {
 public:
  // A window has `seq_len` tokens and the token after them, the last target. `tokens`, and each part of a
  // mixture, must have at least seq_len + 1 tokens.
  DataLoader(TokenSequence tokens, std::int64_t seq_len, std::uint64_t seed,
             const std::vector<MixturePart>& mixture = {});

  // Samples [first, first + count), shuffled.
  Batch shuffled(std::int64_t first, std::int64_t count) const;
  const TokenSequence& tokens() const { return tokens_; }
  std::int64_t seq_len() const { return seq_len_; }
  // The number of windows in an epoch, of all parts. It is one less than fit into a part (but at least 1),
  // because each epoch begins at another offset.
  std::int64_t windows() const;

 private:
  // Consecutive tokens that samples are drawn from.
  struct Part {
    std::int64_t first = 0, size = 0;  // in tokens
    std::int64_t windows = 0;          // in an epoch
    std::int64_t share = 0;
  };

  // The first tokens of a sample, and of sample `index` of part k.
  std::int64_t shuffled_start(std::int64_t sample) const;
  std::int64_t shuffled_start(std::size_t k, std::int64_t index) const;
  void append(Batch& batch, std::int64_t start) const;

  TokenSequence tokens_;
  std::int64_t seq_len_;
  std::uint64_t seed_;
  std::vector<Part> parts_;
};

}  // namespace stagegpt
