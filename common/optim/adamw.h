// AdamW over a model's parameters: one launch over the arena, with global-norm clipping over all of them.
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

class AdamW {
 public:
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config);

  // One update of all weights from their gradients. `step` counts from 0.
  void update(const Parameters& parameters, double learning_rate, std::int64_t step);
  // Norm of all gradients before clipping, at the last update. When it is not finite, that update changed
  // nothing.
  double grad_norm() const;

  const Tensor& m() const { return m_; }  // (arena_size), as laid out by the parameter table
  const Tensor& v() const { return v_; }  // (arena_size)

 private:
  Backend& backend_;
  AdamWConfig config_;
  std::vector<DecayRange> ranges_;
  Tensor m_, v_;
  Tensor squared_norm_;  // f64 (1)
};

}  // namespace stagegpt
