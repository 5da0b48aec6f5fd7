// --comm zero1: each rank owns a slice of the arena. A reduce-scatter gives each rank the summed gradients of
// its slice. The rank updates only this slice, and holds only the moments of this slice. An all-gather then
// distributes the weights. This sends as many bytes as an all-reduce, but divides the work and memory of
// AdamW among ranks. Rajbhandari et al., arXiv:1910.02054, section 5.1.
#pragma once

#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"

namespace stagegpt {

class Zero1Sync : public GradientSync {
 public:
  Zero1Sync(Communicator& communicator, Backend& backend)
      : communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  ArenaParts owned(std::int64_t arena_size) const override { return {slice_of({0, arena_size})}; }

  void ready(Parameters&, int) override {}

  void finish(Parameters& parameters) override {
    start_scatter(parameters.grads())->wait();
    clock_.stop();
  }

  // Every rank adds the sums of all ranks in the order of ranks.
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override {
    const Tensor ranks = backend_.allocate(DType::f64, {communicator_.size()});
    backend_.sum(ranks.slice(communicator_.rank(), {1}), parts);
    communicator_.all_gather(ranks)->wait();
    backend_.sum(sum, ranks);
  }

  void share_weights(Parameters& parameters) override {
    clock_.start();
    communicator_.all_gather(parameters.weights())->wait();
    clock_.stop();
    if (communicator_.size() > 1) parameters.update_shadow();  // AdamW has written this rank's part
  }

  CommunicationReport take_report() override { return clock_.take_report(); }

 protected:
  // This rank's slice of a range, which divides evenly among the ranks.
  ArenaRange slice_of(const ArenaRange& range) const {
    const std::int64_t slice = range.size() / communicator_.size();
    return {range.begin + communicator_.rank() * slice, range.begin + (communicator_.rank() + 1) * slice};
  }
  std::unique_ptr<Pending> start_scatter(const Tensor& grads) {
    clock_.start(grads);
    return communicator_.reduce_scatter(grads);
  }

  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
};

}  // namespace stagegpt
