// Sums of many elements for the gradient norm, and of a few numbers.
#pragma once

#include "common/backend/op.h"

namespace stagegpt {

// out f64 (1) = Σ x², in an order that does not depend on the number of threads: sums of blocks of
// norm_block() elements, which are then added. Or, if `out` has norm_blocks(n) elements, these sums.
struct SquaredNorm {
  static constexpr const char* kName = "squared_norm";
  const Tensor &out, &x;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x}; }
};

// out f64 (1) = Σ blocks, f64 (n): SquaredNorm of the elements that the blocks were computed of, bit for
// bit.
struct AddNormBlocks {
  static constexpr const char* kName = "add_norm_blocks";
  const Tensor &out, &blocks;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &blocks}; }
};

// out f64 (1) = Σ x, of a few numbers x f64 (n), which are added one after the other: the same bits on
// every backend. `out` may be an element of x.
struct Sum {
  static constexpr const char* kName = "sum";
  const Tensor &out, &x;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x}; }
};

}  // namespace stagegpt
