// AdamW over a model's parameters, or the part of them that a rank owns: one launch over the arena, with
// global-norm clipping over all of them.
#pragma once

#include "common/model/parameters.h"

namespace stagegpt {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices only
  double grad_clip = 1.0;     // largest global norm of the gradients; 0 = off
};

// Adam's running means of the gradients and of their squares.
struct Moments {
  Tensor m, v;
};
using Moment = Tensor Moments::*;  // one of the two

class AdamW {
 public:
  // Of the whole arena.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config);
  // Of a part: moments are as long as that.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config, ArenaRange owned);

  // Takes the squared norm of the owned gradients, f64 (1). Who owns a part makes it that of all gradients.
  const Tensor& measure_norm(const Parameters& parameters);
  // One update of the owned weights, after measure_norm(). `step` counts from 0.
  void update(const Parameters& parameters, double learning_rate, std::int64_t step);
  // Norm of all gradients before clipping, at the last update. When it is not finite, that update changed
  // nothing.
  double grad_norm() const;

  ArenaRange owned() const { return owned_; }
  const Moments& moments() const { return moments_; }  // (owned().size()), laid out as the owned weights

 private:
  Backend& backend_;
  AdamWConfig config_;
  ArenaRange owned_;
  std::vector<DecayRange> ranges_;
  Moments moments_;
  Tensor squared_norm_;  // f64 (1)
};

}  // namespace stagegpt
