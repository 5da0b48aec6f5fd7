// Cuts the gradient arena into buckets: neighbouring parameters that are reduced together, of about equal
// size. The first bucket is the end of the arena, because backward completes its gradients first.
#pragma once

#include <vector>

#include "common/model/parameters.h"

namespace stagegpt {

// PyTorch's default size: large enough that latency does not dominate, small enough that reductions start
// early.
inline constexpr std::int64_t kBucketBytes = 25 << 20;

struct Bucket {
  ArenaRange range;
  int parameters = 0;  // that are trained; none is split between buckets
};

class Buckets {
 public:
  // A bucket is closed when its f32 elements have at least `bytes` bytes.
  Buckets(const ParameterTable& table, std::int64_t bytes);

  const std::vector<Bucket>& all() const { return buckets_; }
  // The index of the bucket of parameter i.
  std::size_t of(int i) const { return bucket_of_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
};

}  // namespace stagegpt
