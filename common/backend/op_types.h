// Types of the arguments of ops.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include "common/random/philox.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

// What a backward kernel does with a gradient: skip it, overwrite the tensor, or add to the tensor.
enum class GradMode : std::uint8_t { skip, overwrite, accumulate };

// The tensor that receives a gradient. With `skip` it may be undefined.
struct Grad {
  Tensor tensor;
  GradMode mode = GradMode::skip;

  bool wanted() const { return mode != GradMode::skip; }
  bool accumulates() const { return mode == GradMode::accumulate; }
};

// Activation functions, with Hugging Face's names. `gelu_new` is GELU's approximation with tanh, which GPT-2
// uses (Hendrycks and Gimpel, arXiv:1606.08415, section 2); `gelu` is GELU itself, with erf.
enum class Activation : std::uint8_t { none, gelu_new, gelu, relu };

std::string_view name_of(Activation activation);
std::optional<Activation> activation_named(std::string_view name);

// Dropout: sets an element to zero with probability p, and scales it by 1/(1-p) otherwise. Element i of the
// tensor is kept if the random number with index element(i) in the sequence of `key` is at least p. The mask
// is not stored: the backward pass computes it again.
struct Dropout {
  double p = 0;
  RandomKey key;
  std::int64_t first_element = 0;
  // If `position` is defined, it is a PassPosition in the backend's memory, as i32 (2), which the kernel
  // reads when it runs: its step replaces that of the key, and its sequence times `sequence_elements` is
  // added to first_element.
  Tensor position = {};
  std::int64_t sequence_elements = 0;
  // If run is not 0, the tensor is a part of a larger one, of which it has `run` elements out of every
  // `stride`: some heads of each sequence.
  std::int64_t run = 0, stride = 0;

  std::int64_t element(std::int64_t i) const {
    return first_element + (run == 0 ? i : i / run * stride + i % run);
  }

  bool active() const { return p > 0; }
};

// Where in training a forward and backward pass is.
struct PassPosition {
  std::int32_t step = 0;
  std::int32_t first_sequence = 0;  // of the batch, within the step
};

// What changes from one step of AdamW to the next.
struct AdamWRates {
  double learning_rate = 0;
  double step_size = 0;             // learning_rate/(1-β₁ᵗ)
  double inv_sqrt_correction2 = 0;  // 1/√(1-β₂ᵗ)
};

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::int64_t step = 1;     // counts from 1, for the bias correction of the moments
  double max_grad_norm = 0;  // gradients are scaled down to this global norm; 0: no clipping
  // If it is defined, the AdamWRates in the backend's memory, as f64 (3), which the kernel reads when it
  // runs. They replace learning_rate and step.
  Tensor rates = {};

  // From learning_rate and step.
  AdamWRates host_rates() const {
    return {learning_rate, learning_rate / (1 - std::pow(beta1, step)),
            1 / std::sqrt(1 - std::pow(beta2, step))};
  }
};

// Elements [begin, end) of an arena, and their weight decay.
struct DecayRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight_decay = 0;

  bool operator==(const DecayRange&) const = default;
};

}  // namespace stagegpt
