#include "common/backend/ops/adamw.h"

#include "common/backend/op_work.h"

namespace stagegpt {

void AdamWUpdate::check(const Checks& checks) const {
  checks.real(weights, "weights");
  for (const Tensor& tensor : {m, v, grads})
    checks.elements(tensor, weights.dtype(), weights.numel(), "arena");
  if (shadow.defined()) {
    checks.elements(shadow, DType::bf16, weights.numel(), "shadow");
    checks.dtype(weights, DType::f32, "weights");
  }
  checks.elements(squared_norm, DType::f64, 1, "squared norm");
  for (const DecayRange& range : ranges) {
    checks.that(0 <= range.begin && range.begin <= range.end && range.end <= weights.numel(),
                "ranges inside the arena");
  }
  checks.that(step.step >= 1, "a step that counts from 1");
  if (step.rates.defined()) checks.elements(step.rates, DType::f64, 3, "rates");
}

Work AdamWUpdate::work() const {
  double n = 0;
  for (const DecayRange& range : ranges) n += static_cast<double>(range.end - range.begin);
  // Scaling by the clip factor, m, v, and w = keep·w - a·m / (√v·b + eps). Reads w, m, v and the gradient,
  // writes w, m, v and, if there is one, the shadow.
  const std::size_t bytes = 7 * size_of(weights.dtype()) + (shadow.defined() ? size_of(shadow.dtype()) : 0);
  return {n * (1 + 3 + 4 + 7), n * static_cast<double>(bytes)};
}

}  // namespace stagegpt
