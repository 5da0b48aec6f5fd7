// Finds the tensor in which infinity or NaN first occurs.
#pragma once

#include <optional>
#include <string>

#include "common/data/batch_stream.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Removes the sign of a NaN, which is meaningless and would be printed as "-nan".
double unsigned_nan(double x);

struct FoundTensor {
  std::string name;
  // When it is there: the first op of the forward pass that reads or writes it, counted from 0; gradients
  // come after all ops, in the order of the backward pass.
  std::int64_t time = 0;

  static constexpr std::int64_t kMostOps = std::int64_t{1} << 32;   // of a stage of the model
  static constexpr std::int64_t kBackward = std::int64_t{1} << 48;  // after all stages
};

// Runs a forward pass on ids, targets i32 (B,T), and checks the weights and outputs of each op in turn.
// Returns the first one that contains infinity or NaN: "the weight h.3.mlp.c_fc.weight", "the output of
// h.3.mlp.c_fc (linear)", "the output of attention, after h.3.attn.c_attn". Empty if all are finite.
std::optional<FoundTensor> first_non_finite_output(Backend& backend, const LanguageModel& model,
                                                   const Tensor& ids, const Tensor& targets,
                                                   const DropoutPosition& dropout);

// The first parameter, in the order of the backward pass, whose gradient has a norm that is not finite.
std::optional<FoundTensor> first_non_finite_gradient(Backend& backend, const Parameters& parameters);

// After a step whose loss or gradient is not finite: describes the first tensor of all ranks with infinity or
// NaN, as above. `batches` has just given that step's samples, and gives them again. It repeats the forward
// pass, and checks the gradients if all tensors there are finite. A collective call.
std::string first_non_finite(Backend& backend, const Grid& grid, const LanguageModel& model,
                             BatchStream& batches, std::uint64_t seed, std::int64_t step);

}  // namespace stagegpt
