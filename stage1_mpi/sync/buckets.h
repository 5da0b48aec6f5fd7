// Cuts the gradient arena into buckets that are reduced together, of about equal size. The first bucket is
// the end of the arena, because backward completes its gradients first.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/model/parameters.h"

namespace stagegpt {

// PyTorch's default size: large enough that latency does not dominate, small enough that reductions start
// early.
inline constexpr std::int64_t kBucketBytes = 25 << 20;

struct Bucket {
  ArenaRange range;
  int parameters = 0;  // that are trained, and have elements in the bucket
};

class Buckets {
 public:
  // Buckets of whole parameters. A bucket is closed when its f32 elements have at least `bytes` bytes.
  Buckets(const ParameterTable& table, std::int64_t bytes);
  // Buckets with the given ranges, which cover all parameters, from the end of the arena to its beginning.
  Buckets(const ParameterTable& table, const std::vector<ArenaRange>& ranges);

  const std::vector<Bucket>& all() const { return buckets_; }
  // The indices of the first and of the last bucket with elements of parameter i.
  std::size_t first_of(int i) const { return of_[static_cast<std::size_t>(i)].first; }
  std::size_t last_of(int i) const { return of_[static_cast<std::size_t>(i)].second; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> of_;
};

// Ranges that each divide evenly among `ranks`, from the end of the arena to its beginning: of `bytes` bytes
// in f32 or a little more, but for the last one, which may be smaller.
std::vector<ArenaRange> divisible_ranges(std::int64_t arena_size, int ranks, std::int64_t bytes);

// Says when the reductions of a step start: each bucket as soon as its gradients are complete and the buckets
// before it have been started, because collectives must be called in the same order on all ranks.
class BucketOrder {
 public:
  explicit BucketOrder(Buckets buckets);

  // The gradient of parameter i is complete. Returns the buckets to be started now.
  std::vector<ArenaRange> ready(int i);
  // Returns the buckets that are left. They can start now, because the gradients of unused parameters are
  // zero, and begins a new step.
  std::vector<ArenaRange> finish();

 private:
  void begin_step();

  Buckets buckets_;
  std::vector<int> missing_;  // how many gradients of each bucket are not complete
  std::size_t started_ = 0;
};

}  // namespace stagegpt
