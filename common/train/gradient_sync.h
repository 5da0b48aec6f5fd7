// How gradients are combined over ranks. The trainer calls ready() while backward still runs, so that an
// implementation can start early.
#pragma once

#include "common/model/parameters.h"

namespace stagegpt {

class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // Parameter i's gradient is complete on this rank. Called in any order, once a step for each parameter that
  // the model used; the gradients of others are zero when finish() is called.
  virtual void ready(Parameters& parameters, int i) = 0;
  // After it, gradients are the mean over all ranks.
  virtual void finish(Parameters& parameters) = 0;
  // Bytes of gradients that this rank has given to reductions in the step that finish() has ended.
  virtual std::int64_t bytes_reduced() const = 0;
};

// A single process has nothing to combine.
class NoGradientSync final : public GradientSync {
 public:
  void ready(Parameters&, int) override {}
  void finish(Parameters&) override {}
  std::int64_t bytes_reduced() const override { return 0; }
};

}  // namespace stagegpt
