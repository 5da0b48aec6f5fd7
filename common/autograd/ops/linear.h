#pragma once

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// out (N,O) = x (N,I) · wᵀ + bias; w (O,I), bias (O) or undefined. w may be bf16 or quantised
// while the others are f32; it still accumulates in f32.
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  const Tensor &out, &x, &w, &bias;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x, &w}; }
};

// The gradients of LinearForward.
struct LinearBackward {
  static constexpr const char* kName = "linear_backward";
  const Grad &dx, &dw, &dbias;
  const Tensor &dout, &x, &w;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&dx.tensor, &dw.tensor, &dout, &x, &w}; }
};

// out = activation(pre), pre (N,O) = x · wᵀ + bias.
struct LinearActivationForward {
  static constexpr const char* kName = "linear_activation_forward";
  const Tensor &out, &pre, &x, &w, &bias;
  Activation activation;

  void check(const Checks& checks) const;
  Work work() const;
  void composed(Backend& be) const;
  auto operands() const { return std::array{&out, &pre, &x, &w}; }
};

// LinearBackward of x = activation(pre), with the gradient of pre (N,I) in place of that of x:
// dpre = (dout · w) ⊙ activation'(pre). dpre may be x.
struct ActivationLinearBackward {
  static constexpr const char* kName = "activation_linear_backward";
  const Tensor& dpre;
  const Grad &dw, &dbias;
  const Tensor &dout, &x, &pre, &w;
  Activation activation;

  void check(const Checks& checks) const;
  Work work() const;
  void composed(Backend& be) const;
  auto operands() const { return std::array{&dpre, &dw.tensor, &dout, &x, &pre, &w}; }
};

// The names of the functions below on the tape, by which watches know them.
inline constexpr std::string_view kLinear = "linear";
inline constexpr std::string_view kActivationLinear = "activation_linear";

// x · wᵀ + bias (…,O); x (…,I), w (O,I), bias (O) or an empty Var.
Var linear(Tape& tape, Var x, Var w, Var bias);

// An activation between two linear layers. The first computes it, and the backward of the second
// differentiates it, so that it needs no kernel of its own.
struct Activated {
  Var pre;     // (…,O)
  Tensor out;  // activation(pre) (…,O)
  Activation activation;
  Var x, w, bias;  // pre = x · wᵀ + bias
};

// pre = x · wᵀ + bias and its activation; arguments as in linear().
Activated linear_activation(Tape& tape, Var x, Var w, Var bias, Activation activation);
// x.out · wᵀ + bias (…,O), as a function of x.pre; x (…,I), w (O,I), bias (O) or an empty Var. With
// `recompute`, x.out is not kept, but computed again in the backward.
Var activation_linear(Tape& tape, Activated x, Var w, Var bias, bool recompute = false);

}  // namespace stagegpt
