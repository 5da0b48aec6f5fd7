#pragma once

#include <utility>

#include "common/autograd/tape.h"
#include "common/backend/op.h"

namespace stagegpt {

// out (N,C) = (x - mean) · rstd · w + bias, with mean and 1/√(variance + eps) of each row in mean, rstd
// (N); N = B·T rows. Ba, Kiros and Hinton, arXiv:1607.06450, section 3.
struct LayernormForward {
  static constexpr const char* kName = "layernorm_forward";
  const Tensor &out, &mean, &rstd, &x, &w, &bias;
  double eps;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&out, &x, &w}; }
};

// The gradients of LayernormForward.
struct LayernormBackward {
  static constexpr const char* kName = "layernorm_backward";
  const Grad &dx, &dw, &dbias;
  const Tensor &dout, &x, &w, &mean, &rstd;

  void check(const Checks& checks) const;
  Work work() const;
  auto operands() const { return std::array{&dx.tensor, &dw.tensor, &dout, &x, &w}; }
};

// sum = x + residual, out = layernorm(sum).
struct ResidualLayernormForward {
  static constexpr const char* kName = "residual_layernorm_forward";
  const Tensor &sum, &out, &mean, &rstd, &x, &residual, &w, &bias;
  double eps;

  void check(const Checks& checks) const;
  Work work() const;
  void composed(Backend& be) const;
  auto operands() const { return std::array{&sum, &out, &x, &residual, &w}; }
};

// The names of the functions below on the tape, by which watches know them.
inline constexpr std::string_view kLayernorm = "layernorm";
inline constexpr std::string_view kResidualLayernorm = "residual_layernorm";

// Normalises each row of x (…,C) to mean 0 and variance 1, then scales by w (C) and shifts by bias (C).
Var layernorm(Tape& tape, Var x, Var w, Var bias, double eps);

// Adds a branch to the residual stream and normalises the sum for the next branch, with one kernel. Returns
// x + residual (…,C) and its layernorm (…,C).
std::pair<Var, Var> residual_layernorm(Tape& tape, Var x, Var residual, Var w, Var bias, double eps);

// Adds `residual` to x, unless it is an empty Var, and makes it one. Returns the layernorm of x (…,C).
Var add_and_normalise(Tape& tape, Var& x, Var& residual, const Var& w, const Var& bias, double eps);

}  // namespace stagegpt
