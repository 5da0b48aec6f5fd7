// The arena cut into buckets: neighbours that are reduced together, of about equal size. The first bucket is
// the arena's end, whose gradients backward completes first.
#pragma once

#include <vector>

#include "common/model/parameters.h"

namespace stagegpt {

// PyTorch's size: enough for bandwidth to outweigh latency, and little enough to begin early.
inline constexpr std::int64_t kBucketBytes = 25 << 20;

struct Bucket {
  ArenaRange range;
  int parameters = 0;  // whole ones; no parameter is in two buckets
};

class Buckets {
 public:
  // Closes a bucket when it has `bytes` of f32.
  Buckets(const ParameterTable& table, std::int64_t bytes);

  const std::vector<Bucket>& all() const { return buckets_; }
  // Index of the bucket that parameter i is in.
  std::size_t of(int i) const { return bucket_of_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
};

}  // namespace stagegpt
