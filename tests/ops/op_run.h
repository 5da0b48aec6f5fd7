// Runs an op case on a backend: forward, then backward of a random projection of its outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/ops/op_cases.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

// The scalar that is differentiated is L = Σ_i <r_i, out_i>, with r_i normal numbers.
class OpRun {
 public:
  static constexpr int kNone = -1;

  // Inputs are drawn from `seed`; input `constant` is treated as one that needs no gradient. The memory of
  // gradients holds NaN, for the first contribution must overwrite.
  OpRun(Backend& backend, DType dtype, const OpCase& op, std::uint64_t seed, int constant = kNone);

  bool differentiable(std::size_t i) const { return x_[i].needs_grad(); }
  // Forward and backward, with the r of `projection`. Gradients add up over calls.
  void step(int projection = 0);
  // The outputs of a forward pass alone.
  const std::vector<Values>& infer();

  // Of the last forward pass.
  const std::vector<Values>& outputs() const { return outputs_; }
  // r_i.
  Values direction(int projection, std::size_t output) const;
  Values grad(std::size_t i) { return to_values(backend_, x_[i].grad()); }
  const Values& input(std::size_t i) const { return inputs_[i]; }
  void set_input(std::size_t i, const Values& values) { set_values(backend_, x_[i].value(), values); }

 private:
  std::vector<Var> forward(Tape& tape);

  Backend& backend_;
  DType dtype_;
  const OpCase& op_;
  std::uint64_t seed_;
  std::vector<Values> inputs_, outputs_;
  std::vector<Var> x_;
  std::vector<Tensor> ids_;
};

}  // namespace stagegpt::test
