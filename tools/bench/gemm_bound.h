// A lower bound for the time of a step on this machine: the GEMMs of the linear layers and one AdamW update,
// on the same backend. Of a model that is divided among ranks, it is that of this rank's part.
#pragma once

#include "common/model/language_model.h"
#include "common/optim/adamw.h"

namespace stagegpt {

// The work of a step, on this rank.
struct StepSize {
  std::int64_t tokens = 0;  // of its data rank in a micro-step
  std::int64_t micro_steps = 1;
};

class GemmBound {
 public:
  // Uses the model's arenas. Weights keep their values, but gradients and moments do not: training steps in
  // between are timed correctly, but their results are meaningless. All arguments must outlive this.
  GemmBound(Backend& backend, const LanguageModel& model, const AdamW& optimizer, StepSize size);

  // Computes forward, dX and dW of all linear layers and of the head, for all micro-steps; no bias or
  // activation.
  void products() const;
  // Updates the arena once.
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
  const LanguageModel& model_;
  const AdamW& optimizer_;
  StepSize size_;
  std::vector<Layer> layers_;  // in the order of the forward
  Tensor x_, dx_;              // (N · largest I): inputs, and their gradients
  Tensor out_;                 // (N · largest O): outputs, used as their gradients in the backward
  Tensor norm_;                // f64 (1)
};

}  // namespace stagegpt
