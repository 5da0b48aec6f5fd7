// --comm zero1: each rank owns a slice of the arena. A reduce-scatter gives each rank the summed gradients of
// its slice. The rank updates only this slice, and holds only the moments of this slice. An all-gather then
// distributes the weights. This sends as many bytes as an all-reduce, but divides the work and memory of
// AdamW among ranks. Rajbhandari et al., arXiv:1910.02054, section 5.1.
//
// In bf16 the ranks send the weights as ops read them: the shadow, of half the bytes, and the parameters of
// layernorms in f32. The other weights in f32 are then up to date on their owner only, until
// gather_weights().
#pragma once

#include <algorithm>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/reduction_clock.h"
#include "stage1_mpi/sync/norm_weights.h"

namespace stagegpt {

class Zero1Sync : public GradientSync {
 public:
  Zero1Sync(Communicator& communicator, Backend& backend)
      : communicator_(communicator), backend_(backend), clock_(backend.make_timer()) {}

  ArenaParts owned(std::int64_t arena_size) const final {
    ArenaParts owned;
    for (const ArenaRange& range : ranges(arena_size)) owned.push_back(slice_of(range));
    std::ranges::sort(owned, {}, &ArenaRange::begin);
    return owned;
  }

  void ready(Parameters&, int) override {}

  void finish(Parameters& parameters) override {
    scatter(parameters, ranges(parameters.grads().numel()));
    wait();
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
    const Tensor& shadow = parameters.shadow();
    clock_.start();
    if (shadow.defined() && communicator_.size() > 1) {
      const NormWeights norms(backend_, parameters, owned(shadow.numel()));
      pending_.push_back(communicator_.all_reduce(norms.packed()));
      gather(shadow);
      norms.unpack();
    } else {
      gather(parameters.weights());
    }
    clock_.stop();
  }

  void gather_weights(Parameters& parameters) override {
    if (parameters.shadow().defined()) gather(parameters.weights());
  }

  CommunicationReport take_report() override { return clock_.take_report(); }

 protected:
  // The ranges of an arena that are each divided among the ranks.
  virtual std::vector<ArenaRange> ranges(std::int64_t arena_size) const { return {{0, arena_size}}; }
  // Starts the reduce-scatters of ranges.
  void scatter(const Parameters& parameters, const std::vector<ArenaRange>& ranges) {
    for (const ArenaRange& range : ranges) {
      const Tensor grads = parameters.grads().slice(range.begin, {range.size()});
      clock_.start(grads);
      pending_.push_back(communicator_.reduce_scatter(grads));
    }
  }
  // Waits for all operations. A single one need not be polled.
  void wait() {
    pending_.size() == 1 ? pending_[0]->wait() : communicator_.wait_all(pending_);
    pending_.clear();
  }

  Communicator& communicator_;
  Backend& backend_;
  ReductionClock clock_;
  std::vector<std::unique_ptr<Pending>> pending_;

 private:
  // This rank's slice of a range, which divides evenly among the ranks.
  ArenaRange slice_of(const ArenaRange& range) const {
    const std::int64_t slice = range.size() / communicator_.size();
    return {range.begin + communicator_.rank() * slice, range.begin + (communicator_.rank() + 1) * slice};
  }
  // Distributes what each rank has in its parts of an arena, and waits for all operations.
  void gather(const Tensor& arena) {
    for (const ArenaRange& range : ranges(arena.numel()))
      pending_.push_back(communicator_.all_gather(arena.slice(range.begin, {range.size()})));
    wait();
  }
};

}  // namespace stagegpt
