// A layernorm that the linear layer after it computes, in one kernel: for the next token of a text.
#pragma once

#include "common/autograd/ops/linear.h"
#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// For inference, where a branch of a block begins: sum = x + residual, out (N,O) =
// activation(layernorm(sum) · wᵀ + bias); x, sum (N,C), w (O,C). Without a residual, an undefined tensor, sum
// is undefined too, and x takes its place. Backend::norms_in_product() says where there is a kernel.
struct NormLinearForward {
  static constexpr const char* kName = "norm_linear_forward";
  const Tensor &out, &sum, &x, &residual, &norm_w, &norm_bias;
  double eps;
  const Tensor &w, &bias;
  Activation activation;

  void check(const Checks& checks) const;
  Work work() const;
  void composed(Backend& be) const;
  auto operands() const { return std::array{&out, &sum, &x, &residual, &w}; }
};

// The layernorm (…,C) of a sum, as a linear layer reads it. It may be left to the linear layer, which then
// computes both with one op and writes the sum: nothing may read the sum before, and only one linear layer
// may follow.
struct Normed {
  Var norm = {};  // (…,C); or empty, where it is left, and then:
  Tensor sum = {}, x = {}, residual = {}, weight = {}, bias = {};
  double eps = 0;
};

// As add_and_normalise(), which computes the norm. With `may_be_left`, in inference, it is left to the linear
// layer where the backend has a kernel for both.
Normed normed(Tape& tape, Var& x, Var& residual, const Var& w, const Var& bias, double eps, bool may_be_left);

// As linear() and linear_activation() of the norm; without a backward where it was left to them.
Var linear(Tape& tape, const Normed& x, const Var& w, const Var& bias);
Activated linear_activation(Tape& tape, const Normed& x, const Var& w, const Var& bias,
                            Activation activation);

}  // namespace stagegpt
