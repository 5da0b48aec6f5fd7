// Finds the tensor in which infinity or NaN first occurs.
#pragma once

#include <string>

#include "common/data/batch_stream.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Removes the sign of a NaN, which is meaningless and would be printed as "-nan".
double unsigned_nan(double x);

// After a step whose loss or gradient is not finite: describes the first tensor of all ranks with infinity or
// NaN: "the weight h.3.mlp.c_fc.weight", "the output of h.3.mlp.c_fc (linear)", "the output of attention,
// after h.3.attn.c_attn", "the gradient of h.3.mlp.c_fc.weight". `batches` has just given that step's
// samples, and gives them again. It repeats the forward pass, and checks the gradients if all tensors there
// are finite. A collective call.
std::string first_non_finite(Backend& backend, const Grid& grid, const LanguageModel& model,
                             BatchStream& batches, std::uint64_t seed, std::int64_t step);

}  // namespace stagegpt
