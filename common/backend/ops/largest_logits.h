// The largest of a row of logits, from which the next token is drawn.
#pragma once

#include "common/backend/op.h"

namespace stagegpt {

// values f32 (k), ids i32 (k): the k largest of logits f32 (n) and their indices, largest first, equal ones
// by index; 1 <= k <= kMost, k <= n. If a logit is not finite, the first value is NaN, and its
// index 0.
struct LargestLogits {
  static constexpr const char* kName = "largest_logits";
  static constexpr std::int64_t kMost = 64;
  const Tensor &values, &ids, &logits;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&values, &ids, &logits}; }
};

}  // namespace stagegpt
