// --comm zero1-overlapped: zero1 with the arena cut into buckets, each of them divided among the ranks. The
// reduce-scatter of a bucket starts as soon as backward has completed its gradients, and overlaps with the
// rest of backward. Each rank owns a slice of every bucket. The all-gathers of all buckets are under way at
// the same time.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "stage1_mpi/sync/buckets.h"
#include "stage1_mpi/sync/zero1_sync.h"

namespace stagegpt {

class Zero1OverlappedSync final : public Zero1Sync {
 public:
  Zero1OverlappedSync(Communicator& communicator, Backend& backend, std::int64_t bucket_bytes = kBucketBytes)
      : Zero1Sync(communicator, backend), bucket_bytes_(bucket_bytes) {}

  ArenaParts owned(std::int64_t arena_size) const override {
    ArenaParts owned;
    for (const ArenaRange& range : ranges(arena_size)) owned.push_back(slice_of(range));
    std::ranges::reverse(owned);  // from the beginning of the arena
    return owned;
  }

  void ready(Parameters& parameters, int i) override {
    scatter(parameters, order(parameters).ready(i));
    for (const auto& reduction : pending_) reduction->progress();
  }

  void finish(Parameters& parameters) override {
    scatter(parameters, order(parameters).finish());
    wait();
  }

  void share_weights(Parameters& parameters) override {
    clock_.start();
    const Tensor& weights = parameters.weights();
    for (const ArenaRange& range : ranges(weights.numel()))
      pending_.push_back(communicator_.all_gather(weights.slice(range.begin, {range.size()})));
    wait();
    if (communicator_.size() > 1) parameters.update_shadow();  // AdamW has written this rank's part
  }

 private:
  std::vector<ArenaRange> ranges(std::int64_t arena_size) const {
    return divisible_ranges(arena_size, communicator_.size(), bucket_bytes_);
  }
  BucketOrder& order(const Parameters& parameters) {
    if (!order_) order_.emplace(Buckets(parameters.table(), ranges(parameters.grads().numel())));
    return *order_;
  }
  void scatter(const Parameters& parameters, const std::vector<ArenaRange>& buckets) {
    for (const ArenaRange& range : buckets)
      pending_.push_back(start_scatter(parameters.grads().slice(range.begin, {range.size()})));
  }
  void wait() {
    communicator_.wait_all(pending_);
    pending_.clear();
    clock_.stop();
  }

  std::int64_t bucket_bytes_;
  std::optional<BucketOrder> order_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace stagegpt
