// --comm zero1: each rank owns a slice of the arena. A reduce-scatter gives each rank the summed gradients of
// its slice. The rank updates only this slice, and holds only the moments of this slice. An all-gather then
// distributes the weights. This sends as many bytes as an all-reduce, but divides the work and memory of
// AdamW among ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "common/backend/ops/sums.h"
#include "common/comm/divided_sync.h"

namespace stagegpt {

class Zero1Sync : public DividedSync {
 public:
  using DividedSync::DividedSync;

  ArenaParts owned(std::int64_t arena_size) const final {
    ArenaParts owned;
    for (const ArenaRange& range : ranges(arena_size)) owned.push_back(slice_of(range));
    std::ranges::sort(owned, {}, &ArenaRange::begin);
    return owned;
  }

  void finish(Parameters& parameters) override {
    scatter(parameters, ranges(parameters.grads().numel()));
    wait();
    clock_.stop();
  }

  // Every rank adds the sums of all ranks in the order of ranks.
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override {
    const Tensor ranks = backend_.allocate(DType::f64, {communicator_.size()});
    backend_.run(Sum{ranks.slice(communicator_.rank(), {1}), parts});
    communicator_.all_gather(ranks)->wait();
    backend_.run(Sum{sum, ranks});
  }

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

 private:
  // This rank's slice of a range, which divides evenly among the ranks.
  ArenaRange slice_of(const ArenaRange& range) const {
    const std::int64_t slice = range.size() / communicator_.size();
    return {range.begin + communicator_.rank() * slice, range.begin + (communicator_.rank() + 1) * slice};
  }
  void gather(const Tensor& arena) override {
    for (const ArenaRange& range : ranges(arena.numel()))
      pending_.push_back(communicator_.all_gather(arena.slice(range.begin, {range.size()})));
    wait();
  }
};

}  // namespace stagegpt
