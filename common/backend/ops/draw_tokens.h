// Draws the next token of each text from its logits.
#pragma once

#include "common/backend/op.h"
#include "common/random/philox.h"

namespace stagegpt {

// ids i32 (B): for row b of logits f32 (B,…,Vp), a token below vocab_size, drawn with probability
// softmax(logits/temperature): the first for which the sum of probabilities up to it exceeds uniform(b). If a
// logit is not finite, the id is -1.
struct DrawTokens {
  static constexpr const char* kName = "draw_tokens";
  const Tensor &ids, &logits;
  std::int64_t vocab_size;
  double temperature;
  RandomKey key;          // of row 0; the step of row b is greater by b
  std::uint64_t element;  // of the sequence of random numbers

  RandomKey key_of(std::int64_t row) const {
    return {key.seed, key.stream, key.step + static_cast<std::uint32_t>(row)};
  }
  double uniform(std::int64_t row) const { return random_uniform(key_of(row), element); }

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&ids, &logits}; }
};

}  // namespace stagegpt
