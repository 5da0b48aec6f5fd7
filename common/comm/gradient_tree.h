// Sums gradients in a fixed order, a binary tree over the sub-batches of a batch:
// ((0+1)+(2+3))+((4+5)+(6+7)). An aligned range of sub-batches is a subtree. So ranks that each own such a
// range get the same bits as one rank that owns all sub-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "common/backend/backend.h"

namespace stagegpt {

class GradientTree {
 public:
  // The number of sub-batches, `leaves`, must be a power of two.
  GradientTree(Backend& backend, std::int64_t leaves);

  // Adds the gradients of the next sub-batch. After the last one, `grads` is the sum; after earlier ones its
  // contents are undefined.
  void add(const Tensor& grads);

 private:
  Backend& backend_;
  std::int64_t leaves_, added_ = 0;
  // subtrees_[i]: the sum of 2^i sub-batches, to be added to that of the next 2^i. Allocated when needed.
  std::vector<Tensor> subtrees_;
};

}  // namespace stagegpt
