// The sum of gradients in a fixed order: that of a binary tree over the sub-batches of a batch. Neighbours
// are added first, ((0+1)+(2+3))+((4+5)+(6+7)), so that an aligned part of them is a subtree: ranks that own
// such parts add to the same bits as one that owns all.
#pragma once

#include <cstdint>
#include <vector>

#include "common/backend/backend.h"

namespace stagegpt {

class GradientTree {
 public:
  // Over `leaves` sub-batches, a power of two.
  GradientTree(Backend& backend, std::int64_t leaves);

  // Takes the gradients of the next sub-batch. After the last one their sum is in `grads`; before, what is
  // there may be overwritten.
  void add(const Tensor& grads);

 private:
  Backend& backend_;
  std::int64_t leaves_, added_ = 0;
  std::vector<Tensor> subtrees_;  // the sum of 2^i of them that waits for as many more; allocated when needed
};

}  // namespace stagegpt
