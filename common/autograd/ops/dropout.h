#pragma once

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// out = x, with elements dropped (Dropout in op_types.h).
struct DropoutForward {
  static constexpr const char* kName = "dropout_forward";
  const Tensor &out, &x;
  const Dropout& dropout;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x}; }
};

// The gradients of DropoutForward.
struct DropoutBackward {
  static constexpr const char* kName = "dropout_backward";
  const Grad& dx;
  const Tensor& dout;
  const Dropout& dropout;

  void check(const Checks& checks) const;
  Work work() const;
  bool is_wanted() const { return dx.wanted(); }
  auto operands() const { return std::array{&dx.tensor, &dout}; }
};

// x with elements dropped; x itself if dropout is off.
Var dropout(Tape& tape, Var x, const Dropout& dropout);

}  // namespace stagegpt
