// Small types that appear in the signatures of ops.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "common/random/philox.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

// What a backward kernel does with a gradient: nothing, write it, or add to what is there.
enum class GradMode : std::uint8_t { skip, overwrite, accumulate };

// Where a gradient goes. With `skip` the tensor may be undefined.
struct Grad {
  Tensor tensor;
  GradMode mode = GradMode::skip;

  bool wanted() const { return mode != GradMode::skip; }
  bool accumulates() const { return mode == GradMode::accumulate; }
};

// Pointwise non-linearities, by Hugging Face's names. `gelu_new` is the tanh form of GPT-2 (Hendrycks and
// Gimpel, arXiv:1606.08415, section 2), `gelu` the exact one with erf.
enum class Activation : std::uint8_t { none, gelu_new, gelu, relu };

std::string_view name_of(Activation activation);
std::optional<Activation> activation_named(std::string_view name);

// Dropout with probability p of dropping; what stays is scaled by 1/(1-p). Element i of the tensor is kept
// when number first_element + i of the sequence `key` is at least p: the mask is never stored.
struct Dropout {
  double p = 0;
  RandomKey key;
  std::int64_t first_element = 0;

  bool active() const { return p > 0; }
};

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t step = 1;     // counts from 1, for the correction of the moments' bias
  double max_grad_norm = 0;  // gradients are scaled down to this global norm; 0 leaves them alone
};

// Part [begin, end) of an arena, in elements, and its weight decay.
struct DecayRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight_decay = 0;
};

}  // namespace stagegpt
