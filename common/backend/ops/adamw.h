#pragma once

#include <span>

#include "common/backend/op.h"

namespace stagegpt {

// One AdamW step over flat tensors of the same size, with decoupled weight decay (Loshchilov and Hutter,
// arXiv:1711.05101, algorithm 2). Gradients are first scaled by min(1, max_grad_norm / (√squared_norm +
// 1e-6)), with squared_norm f64 (1); if that is not finite, nothing is changed. Elements outside all
// ranges are not changed either. `shadow` receives the updated weights, rounded to bf16 as by Cast; it is
// undefined if there is none, and the weights are f32 otherwise.
struct AdamWUpdate {
  static constexpr const char* kName = "adamw";
  const Tensor &weights, &shadow, &m, &v, &grads, &squared_norm;
  std::span<const DecayRange> ranges;
  const AdamWStep& step;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&weights}; }
};

}  // namespace stagegpt
