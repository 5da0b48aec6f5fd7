// Runs an op case on a backend: forward, then backward of a random projection of its outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/ops/op_cases.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {

// The differentiated scalar is L = Σ_i <r_i, out_i>. out_i is the i-th output of the op, and r_i contains
// normally distributed random numbers.
class OpRun {
 public:
  static constexpr int kNone = -1;

  // Inputs are random numbers of `seed`. The input with index `constant` needs no gradient. Gradients are NaN
  // at first, because the first contribution must overwrite them. Inputs and r_i are rounded to `rounded_to`,
  // so that runs in different dtypes have the same inputs.
  OpRun(Backend& backend, DType dtype, const OpCase& op, std::uint64_t seed, int constant = kNone,
        DType rounded_to = DType::f32);

  bool differentiable(std::size_t i) const { return x_[i].needs_grad(); }
  // Runs forward and backward. Each number `projection` gives different r_i. Gradients accumulate over calls.
  void step(int projection = 0);
  // The same without a scalar: backward begins from r_i as the gradients of the outputs.
  void step_from_outputs(int projection = 0);
  // Runs only a forward pass, and returns its outputs.
  const std::vector<Values>& infer();

  // The outputs of the last forward pass.
  const std::vector<Values>& outputs() const { return outputs_; }
  const Shape& output_shape(std::size_t i) const { return output_shapes_[i]; }
  // r_i, with i = `output`.
  Values direction(int projection, std::size_t output) const;
  Values grad(std::size_t i) { return to_values(backend_, x_[i].grad()); }
  const Values& input(std::size_t i) const { return inputs_[i]; }
  const Shape& input_shape(std::size_t i) const { return op_.reals[i].shape; }
  void set_input(std::size_t i, const Values& values) { set_values(backend_, x_[i].value(), values); }

 private:
  std::vector<Var> forward(Tape& tape);
  std::vector<Tensor> directions(const std::vector<Var>& outs, int projection) const;

  Backend& backend_;
  DType dtype_, rounded_to_;
  const OpCase& op_;
  std::uint64_t seed_;
  std::vector<Values> inputs_, outputs_;
  std::vector<Shape> output_shapes_;
  std::vector<Var> x_;
  std::vector<Tensor> ids_;
};

}  // namespace stagegpt::test
