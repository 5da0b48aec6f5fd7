#include "common/backend/ops/largest_logits.h"

#include "common/backend/op_work.h"

namespace stagegpt {

void LargestLogits::check(const Checks& checks) const {
  checks.dtype(logits, DType::f32, "logits");
  checks.dtype(values, DType::f32, "values");
  const std::int64_t k = values.numel();
  checks.that(k >= 1 && k <= kMost && k <= logits.numel(), "from 1 to 64 values, and no more than logits");
  checks.elements(ids, DType::i32, k, "ids");
}

// A comparison for each logit that is looked at.
Work LargestLogits::work() const { return {elements(logits), moved(values, ids, logits)}; }

}  // namespace stagegpt
