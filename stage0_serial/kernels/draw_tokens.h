// Tokens drawn from their logits: see DrawTokens (common/backend/ops/draw_tokens.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/backend/ops/draw_tokens.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// The token of n logits at u, which is in [0, 1).
inline std::int32_t drawn_token(const float* logits, std::int64_t n, double temperature, double u) {
  if (!std::all_of(logits, logits + n, [](float logit) { return std::isfinite(logit); })) return -1;
  const double largest = *std::max_element(logits, logits + n);
  std::vector<double> weights(static_cast<std::size_t>(n));
  double sum = 0, taken = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    sum += weights[i] = std::exp((logits[i] - largest) / temperature);
  std::size_t last = 0;  // that may be drawn
  for (std::size_t i = 0; i < weights.size() && taken <= u * sum; ++i) {
    if (weights[i] == 0) continue;
    taken += weights[i];
    last = i;
  }
  return static_cast<std::int32_t>(last);
}

inline void draw_tokens(const Parallel& parallel, const DrawTokens& op) {
  const float* logits = op.logits.data<float>();
  const std::int64_t Vp = op.logits.shape()[-1];
  parallel.each(op.ids.numel(), [&](std::int64_t b) {
    op.ids.data<std::int32_t>()[b] =
        drawn_token(logits + b * Vp, op.vocab_size, op.temperature, op.uniform(b));
  });
}

}  // namespace stagegpt
