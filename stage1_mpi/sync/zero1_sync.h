// --comm zero1: each rank owns a slice of the arena. A reduce-scatter gives each rank the summed gradients of
// its slice. The rank updates only this slice, and holds only the moments of this slice. An all-gather then
// distributes the weights. This sends as many bytes as an all-reduce, but divides the work and memory of
// AdamW among ranks. Rajbhandari et al., arXiv:1910.02054, section 5.1.
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
