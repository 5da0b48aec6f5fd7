#include "common/comm/gradient_tree.h"

#include <bit>

#include "common/backend/ops/elementwise.h"

namespace stagegpt {

GradientTree::GradientTree(Backend& backend, std::int64_t leaves) : backend_(backend), leaves_(leaves) {
  check(std::has_single_bit(static_cast<std::uint64_t>(leaves)), "gradient tree: ", leaves, " leaves");
  subtrees_.resize(static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(leaves))));
}

void GradientTree::add(const Tensor& grads) {
  std::size_t level = 0;
  // As in a binary counter: each set bit is a finished subtree, which is added and carried to the next level.
  for (std::int64_t n = added_; n % 2 == 1; n /= 2) backend_.run(Add{grads, subtrees_[level++], grads});
  added_ = (added_ + 1) % leaves_;
  if (added_ == 0) return;
  if (!subtrees_[level].defined()) subtrees_[level] = backend_.allocate(grads.dtype(), grads.shape());
  backend_.copy(subtrees_[level], grads);
}

}  // namespace stagegpt
