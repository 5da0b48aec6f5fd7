// --comm zero1-overlapped: zero1 with the arena cut into buckets, each of them divided among the ranks. The
// reduce-scatter of a bucket starts as soon as backward has completed its gradients, and overlaps with the
// rest of backward. Each rank owns a slice of every bucket. The all-gathers of all buckets are under way at
// the same time.
#pragma once

#include <optional>

#include "stage1_mpi/sync/buckets.h"
#include "stage1_mpi/sync/zero1_sync.h"

namespace stagegpt {

class Zero1OverlappedSync final : public Zero1Sync {
 public:
  Zero1OverlappedSync(Communicator& communicator, Backend& backend, std::int64_t bucket_bytes = kBucketBytes)
      : Zero1Sync(communicator, backend), bucket_bytes_(bucket_bytes) {}

  void ready(Parameters& parameters, int i) override {
    scatter(parameters, order(parameters).ready(i));
    for (const auto& reduction : pending_) reduction->progress();
  }

  void finish(Parameters& parameters) override {
    scatter(parameters, order(parameters).finish());
    wait();
    clock_.stop();
  }

 private:
  std::vector<ArenaRange> ranges(std::int64_t arena_size) const override {
    return divisible_ranges(arena_size, communicator_.size(), bucket_bytes_);
  }
  BucketOrder& order(const Parameters& parameters) {
    if (!order_) order_.emplace(Buckets(parameters.table(), ranges(parameters.grads().numel())));
    return *order_;
  }

  std::int64_t bucket_bytes_;
  std::optional<BucketOrder> order_;
};

}  // namespace stagegpt
