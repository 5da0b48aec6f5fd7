// Where infinity or NaN came from.
#pragma once

#include <optional>
#include <string>

#include "common/model/gpt2.h"

namespace stagegpt {

// The same number, to be printed: a NaN has lost its sign, which says nothing and would read "-nan".
double unsigned_nan(double x);

// Runs a forward pass on ids, targets i32 (B,T) and looks at the weights and outputs of each op in turn.
// Names the first that holds infinity or NaN: "the weight h.3.mlp.c_fc.weight", "the output of h.3.mlp.c_fc
// (linear)", "the output of attention, after h.3.attn.c_attn". Nothing where all are finite.
std::optional<std::string> first_non_finite_output(Backend& backend, const Gpt2& model, const Tensor& ids,
                                                   const Tensor& targets, const DropoutPosition& dropout);

// The parameter, in the order in which backward comes to them, whose gradient has a norm that is not finite.
std::optional<std::string> first_non_finite_gradient(Backend& backend, const Parameters& parameters);

}  // namespace stagegpt
