// How ranks combine their gradients. The trainer calls ready() while backward still runs, so that an
// implementation can start early.
#pragma once

#include "common/model/parameters.h"

namespace stagegpt {

// What synchronisation took in one step of this rank.
struct CommunicationReport {
  std::int64_t bytes_reduced = 0;  // of gradients, given to reductions
  double seconds_under_way = 0;    // from the start of the first reduction to the end of the last
};

class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // The part of an arena that this rank updates.
  virtual ArenaRange owned(std::int64_t arena_size) const { return {0, arena_size}; }
  // Parameter i's gradient is complete on this rank. Called in any order, once a step for each parameter that
  // the model used; the gradients of others are zero when finish() is called.
  virtual void ready(Parameters& parameters, int i) = 0;
  // After it, the gradients of the owned part are the sum over all ranks.
  virtual void finish(Parameters& parameters) = 0;
  // Makes a squared norm f64 (1) of the owned part that of all gradients: rank 0's, the same bits on every
  // rank, so that none clips or skips otherwise than the others.
  virtual void sum_squared_norm(const Tensor& squared_norm) = 0;
  // Ends a step: after it, every rank has all weights.
  virtual void share_weights(Parameters& parameters) = 0;
  // Of the step that has ended; called once a step. Waits for the backend's work.
  virtual CommunicationReport take_report() = 0;
};

// A single process has nothing to combine.
class NoGradientSync : public GradientSync {
 public:
  void ready(Parameters&, int) override {}
  void finish(Parameters&) override {}
  void sum_squared_norm(const Tensor&) override {}
  void share_weights(Parameters&) override {}
  CommunicationReport take_report() override { return {}; }
};

}  // namespace stagegpt
