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
    begin_step(parameters);
    const std::size_t bucket = buckets_->of(i);
    if (--missing_[bucket] == 0) start_complete(parameters);
    for (const auto& reduction : pending_) reduction->progress();
  }

  void finish(Parameters& parameters) override {
    begin_step(parameters);
    missing_.assign(missing_.size(), 0);  // the gradients of unused parameters are zero now
    start_complete(parameters);
    wait_all(pending_);
    pending_.clear();
    missing_.clear();
    finished();
  }

 private:
  void begin_step(const Parameters& parameters) {
    if (!buckets_) buckets_.emplace(parameters.table(), bucket_bytes_);
    if (!missing_.empty()) return;
    for (const Bucket& bucket : buckets_->all()) missing_.push_back(bucket.parameters);
  }

  // Starts the complete buckets in order: collectives must be called in the same order on all ranks.
  void start_complete(Parameters& parameters) {
    while (pending_.size() < missing_.size() && missing_[pending_.size()] == 0) {
      const ArenaRange range = buckets_->all()[pending_.size()].range;
      pending_.push_back(start(parameters.grads().slice(range.begin, {range.size()})));
    }
  }

  std::int64_t bucket_bytes_;
  std::optional<Buckets> buckets_;
  std::vector<int> missing_;  // how many gradients of each bucket are not complete; empty between steps
  std::vector<std::unique_ptr<Pending>> pending_;
};

}  // namespace stagegpt
