// The optimizer AdamW, with clipping to a global norm. One kernel updates all parameters and their shadow, or
// each of the parts of the arena that a rank owns.
#pragma once

#include "common/model/parameters.h"
#include "common/optim/update_counts.h"

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
  // A part of the arena that is updated, and its moments.
  struct Part {
    ArenaRange range;
    Moments moments;  // (range.size())
    // What each group of parameters has of it, relative to its beginning.
    std::vector<std::vector<DecayRange>> decay = {};
  };

  // Updates the whole arena.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config);
  // Updates parts of the arena, some of which may be empty; the moments have the size of these parts. With
  // `norm_in_blocks`, measure_norms() measures the backend's blocks of each part in place of whole parts.
  AdamW(Backend& backend, const Parameters& parameters, const AdamWConfig& config, const ArenaParts& owned,
        bool norm_in_blocks = false);

  // Computes the squared norm of the gradients of each part, or of each block. The caller must then sum them,
  // unless there is only one part (GradientSync::sum_squared_norms) before update().
  void measure_norms(const Parameters& parameters);
  // The moments are those after so many updates. Not after the first update.
  void restore(const Parameters& parameters, const UpdateCounts& updates);
  // Sets the learning rate and the number of the next update, which counts from 0.
  void set_step(double learning_rate, std::int64_t update);
  // One update of the owned weights and, if there is one, of their shadow, after measure_norms() and
  // set_step(). Like measure_norms(), it can be part of repeated work (Backend::repeat()).
  void update(const Parameters& parameters);

  const std::vector<Part>& parts() const { return parts_; }
  ArenaParts owned() const;
  // The moments of all parts, one after the other, (total_size(owned())).
  const Moments& moments() const { return moments_; }
  // The squared norms of the parts, f64 (number of parts); or of the blocks of all parts.
  const Tensor& squared_norms() const { return squared_norms_; }
  // The squared norm of all gradients at the last update, before clipping, f64 (1). If it is not finite, that
  // update changed nothing. With one part, not in blocks, it is squared_norms().
  const Tensor& squared_norm() const { return squared_norm_; }

 private:
  // How many norms are measured in a part, and in all.
  std::int64_t norms_of(const ArenaRange& range) const {
    return norm_in_blocks_ ? backend_.norm_blocks(range.size()) : 1;
  }
  std::int64_t number_of_norms(const ArenaParts& owned) const;

  // The parameters that have missed the same number of updates, for want of training.
  struct Group {
    std::int64_t missed;
    AdamWStep step;  // with its rates in the backend's memory
  };

  Backend& backend_;
  AdamWConfig config_;
  Moments moments_;
  std::vector<Part> parts_;
  bool norm_in_blocks_;
  Tensor squared_norms_, squared_norm_;
  std::vector<Group> groups_;
};

}  // namespace stagegpt
