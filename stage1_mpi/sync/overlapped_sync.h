// --comm overlapped: the all-reduce of a bucket starts as soon as backward has completed its gradients, and
// overlaps with the rest of backward. MPI makes progress only inside its calls, so each ready() also advances
// the pending reductions.
#pragma once

#include <optional>
#include <vector>

#include "stage1_mpi/sync/all_reduce_sync.h"
#include "stage1_mpi/sync/buckets.h"

namespace stagegpt {

class OverlappedSync final : public AllReduceSync {
 public:
  OverlappedSync(Communicator& communicator, Backend& backend, std::int64_t bucket_bytes = kBucketBytes)
      : AllReduceSync(communicator, backend), bucket_bytes_(bucket_bytes) {}

  void ready(Parameters& parameters, int i) override {
    reduce(parameters, order(parameters).ready(i));
    for (const auto& reduction : pending_) reduction->progress();
  }

  void finish(Parameters& parameters) override {
    reduce(parameters, order(parameters).finish());
    wait_all(pending_);
    pending_.clear();
    finished();
  }

 private:
  BucketOrder& order(const Parameters& parameters) {
    if (!order_) order_.emplace(Buckets(parameters.table(), bucket_bytes_));
    return *order_;
  }
  void reduce(const Parameters& parameters, const std::vector<ArenaRange>& buckets) {
    for (const ArenaRange& range : buckets)
      pending_.push_back(start(parameters.grads().slice(range.begin, {range.size()})));
  }

  std::int64_t bucket_bytes_;
  std::optional<BucketOrder> order_;
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace stagegpt
