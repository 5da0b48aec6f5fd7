// Early stopping: training ends when its validation loss has not improved for some validations.
#pragma once

#include <cstdint>
#include <optional>

#include "common/checkpoint/trainer_state.h"

namespace stagegpt {

// `best` after another validation, of which step, loss and tokens are given. A loss over another number of
// tokens cannot be compared, and begins anew. NaN is never better.
BestValidation after_validation(const std::optional<BestValidation>& best, std::int64_t step, double loss,
                                std::int64_t tokens);

}  // namespace stagegpt
