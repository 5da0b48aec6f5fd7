// The parameters of layernorms, packed into one tensor to be sent: ops read them in f32 also where they read
// all other parameters in bf16.
#pragma once

#include <algorithm>

#include "common/model/parameters.h"

namespace stagegpt {

class NormWeights {
 public:
  // Copies the parameters in the `owned` parts of the arena. All other elements are -0: x + -0 has the bits
  // of x, also where x is 0. So if each part of the arena has one owner, the sum over ranks has the bits of
  // all owners.
  NormWeights(Backend& backend, const Parameters& parameters, const ArenaParts& owned)
      : backend_(backend),
        weights_(parameters.weights()),
        ranges_(parameters.table().norms()),
        packed_(backend.allocate(weights_.dtype(), {total_size(ranges_)})) {
    backend.fill(packed_, -0.0);
    std::int64_t offset = 0;  // of a range in the packed tensor
    for (const ArenaRange& range : ranges_) {
      for (const ArenaRange& part : owned) {
        const std::int64_t begin = std::max(range.begin, part.begin), end = std::min(range.end, part.end);
        if (begin < end) copy(packed_, offset + begin - range.begin, weights_, begin, end - begin);
      }
      offset += range.size();
    }
  }

  // f32, to be summed over ranks.
  const Tensor& packed() const { return packed_; }

  // Copies the sums to the arena.
  void unpack() const {
    std::int64_t offset = 0;
    for (const ArenaRange& range : ranges_) {
      copy(weights_, range.begin, packed_, offset, range.size());
      offset += range.size();
    }
  }

 private:
  void copy(const Tensor& to, std::int64_t at, const Tensor& from, std::int64_t begin,
            std::int64_t size) const {
    backend_.copy(to.slice(at, {size}), from.slice(begin, {size}));
  }

  Backend& backend_;
  Tensor weights_;
  ArenaParts ranges_;
  Tensor packed_;
};

}  // namespace stagegpt
