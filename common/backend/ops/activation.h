#pragma once

#include "common/backend/op.h"

namespace stagegpt {

// out = activation(x), element by element.
struct ActivationForward {
  static constexpr const char* kName = "activation_forward";
  const Tensor &out, &x;
  Activation activation;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x}; }
};

// The gradient of x in ActivationForward. dx.tensor may be x or dout.
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";
  const Grad& dx;
  const Tensor &dout, &x;
  Activation activation;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&dx.tensor, &dout, &x}; }
};

// Operations for each element.
double forward_flops(Activation activation);
double backward_flops(Activation activation);  // the derivative, and its product with dout

}  // namespace stagegpt
