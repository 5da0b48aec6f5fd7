// The k largest of n logits: see LargestLogits (common/backend/ops/largest_logits.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace stagegpt {

inline void largest_logits(float* values, std::int32_t* ids, const float* logits, std::int64_t n,
                           std::int64_t k) {
  if (!std::all_of(logits, logits + n, [](float logit) { return std::isfinite(logit); })) {
    values[0] = std::numeric_limits<float>::quiet_NaN();
    ids[0] = 0;
    return;
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [=](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (std::int64_t i = 0; i < k; ++i) {
    ids[i] = order[static_cast<std::size_t>(i)];
    values[i] = logits[ids[i]];
  }
}

}  // namespace stagegpt
