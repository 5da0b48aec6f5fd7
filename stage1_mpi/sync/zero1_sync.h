// --comm zero1: each rank owns a slice of the arena. Gradients are reduce-scattered, so that it has the sum
// of its slice; it updates that, with moments of that alone, and the weights are all-gathered. As many bytes
// move as in an all-reduce, but AdamW's work and memory are divided. Rajbhandari et al., arXiv:1910.02054,
// section 5.1.
#pragma once

#include "common/comm/agreement.h"
#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class Zero1Sync final : public GradientSync {
 public:
  Zero1Sync(Communicator& communicator, Backend& backend)
      : communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  ArenaRange owned(std::int64_t arena_size) const override {
    const std::int64_t slice = arena_size / communicator_.size();
    return {communicator_.rank() * slice, (communicator_.rank() + 1) * slice};
  }

  void ready(Parameters&, int) override {}

  void finish(Parameters& parameters) override {
    clock_.start(parameters.grads());
    communicator_.reduce_scatter(parameters.grads())->wait();
    clock_.stop();
  }

  void sum_squared_norm(const Tensor& squared_norm) override {
    double sum = 0;
    for (const double part : gather(communicator_.group(), to_host<double>(backend_, squared_norm)))
      sum += part;
    sum = from_root(communicator_.group(), sum);
    upload<double>(backend_, squared_norm, {&sum, 1});
  }

  void share_weights(Parameters& parameters) override {
    clock_.start();
    communicator_.all_gather(parameters.weights())->wait();
    clock_.stop();
  }

  CommunicationReport take_report() override { return clock_.take_report(); }

 private:
  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
};

}  // namespace stagegpt
