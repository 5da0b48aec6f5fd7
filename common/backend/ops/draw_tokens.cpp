#include "common/backend/ops/draw_tokens.h"

#include "common/backend/op_work.h"

namespace stagegpt {

void DrawTokens::check(const Checks& checks) const {
  checks.dtype(logits, DType::f32, "logits");
  const Shape& shape = logits.shape();
  checks.that(shape.rank() >= 2 && logits.numel() == shape[0] * shape[-1],
              "logits of one token of each text");
  checks.elements(ids, DType::i32, shape[0], "ids");
  checks.that(vocab_size >= 1 && vocab_size <= shape[-1], "a vocabulary within the logits");
  checks.that(temperature > 0, "a positive temperature");
}

// For each logit a difference, a quotient, an exponential and a sum.
Work DrawTokens::work() const {
  const double looked_at = static_cast<double>(logits.shape()[0] * vocab_size);
  return {4 * looked_at, looked_at * sizeof(float) + moved(ids)};
}

}  // namespace stagegpt
