#include "common/train/early_stopping.h"

#include <cmath>

namespace stagegpt {

BestValidation after_validation(const std::optional<BestValidation>& best, std::int64_t step, double loss,
                                std::int64_t tokens) {
  const bool first = !best || best->tokens != tokens || std::isnan(best->loss);
  if (first || loss < best->loss) return {.loss = loss, .tokens = tokens, .step = step};
  BestValidation same = *best;
  ++same.worse;
  return same;
}

}  // namespace stagegpt
