// The optimizer AdamW, with clipping to a global norm. One kernel updates all parameters, or the part of them
// that a rank owns.
#pragma once

#include "common/model/parameters.h"

namespace stagegpt {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // for matrices only
  double grad_clip = 1.0;     // largest global norm of the gradients; 0 = off
};

// Adam's moving averages of the gradients and of their squares.
struct Moments {
  Tensor m, v;
};
using Moment = Tensor Moments::*;  // one of the two

class AdamW {
 public:
  // Updates the whole arena.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config);
  // Updates a part of the arena; the moments have the size of that part.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config, ArenaRange owned);

  // Computes the squared norm of the owned gradients, f64 (1). If each rank owns a part, the caller must sum
  // it over the ranks (GradientSync::sum_squared_norm) before update().
  const Tensor& measure_norm(const Parameters& parameters);
  // One update of the owned weights, after measure_norm(). `step` counts from 0.
  void update(const Parameters& parameters, double learning_rate, std::int64_t step);
  // The squared norm of all gradients at the last update, before clipping, f64 (1). If it is not finite, that
  // update changed nothing.
  const Tensor& squared_norm() const { return squared_norm_; }

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
