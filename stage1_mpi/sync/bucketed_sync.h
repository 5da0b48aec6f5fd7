// --comm bucketed: after backward, one all-reduce per bucket, all concurrently.
#pragma once

#include <vector>

#include "stage1_mpi/sync/all_reduce_sync.h"
#include "stage1_mpi/sync/buckets.h"

namespace stagegpt {

class BucketedSync final : public AllReduceSync {
 public:
  BucketedSync(Communicator& communicator, Backend& backend, std::int64_t bucket_bytes = kBucketBytes)
      : AllReduceSync(communicator, backend), bucket_bytes_(bucket_bytes) {}

  void finish(Parameters& parameters) override {
    std::vector<std::unique_ptr<Pending>> pending;
    const Buckets buckets(parameters.table(), bucket_bytes_);
    for (const Bucket& bucket : buckets.all()) {
      pending.push_back(start(parameters.grads().slice(bucket.range.begin, {bucket.range.size()})));
    }
    wait_all(pending);
    finished();
  }

 private:
  std::int64_t bucket_bytes_;
};

}  // namespace stagegpt
