// The least a step can take on this machine: the matrix products of its linear layers and one pass of AdamW,
// through the same backend, and nothing else.
#pragma once

#include "common/model/gpt2.h"
#include "common/optim/adamw.h"

namespace stagegpt {

// What a step has to do, on this rank.
struct StepSize {
  std::int64_t tokens = 0;  // in a micro-step
  std::int64_t micro_steps = 1;
};

class GemmBound {
 public:
  // Works on the model's own arenas: weights stay as they are, gradients and moments do not, so that steps in
  // between take their time but learn nothing. Everything is borrowed.
  GemmBound(Backend& backend, const Gpt2& model, const AdamW& optimizer, StepSize size);

  // Forward, dX and dW of every linear layer and of the head, for all micro-steps; no bias, no activation.
  void products() const;
  // One pass over the arena.
  void adamw() const;

 private:
  // The matrix of a linear layer and its gradient, (O,I).
  struct Layer {
    Tensor w, dw;
  };

  void micro_step(GradMode dw_mode) const;
  // The first N rows of a buffer, as (N,columns).
  Tensor rows(const Tensor& buffer, std::int64_t columns) const;

  Backend& backend_;
  const Gpt2& model_;
  const AdamW& optimizer_;
  StepSize size_;
  std::vector<Layer> layers_;  // in the order of the forward
  Tensor x_, dx_;              // (N · largest I): inputs, and their gradients
  Tensor out_;                 // (N · largest O): results, which are taken for gradients in the backward
  Tensor norm_;                // f64 (1)
};

}  // namespace stagegpt
