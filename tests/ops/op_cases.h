// The table of op cases: every op, at sizes that are odd on purpose. The op tests run all cases on every
// backend. For a new op, or a size that has failed, add a row.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/autograd/tape.h"

namespace stagegpt::test {

// The role of an input in a model, which determines its dtype if activations are bf16. Parameters are then
// bf16, but the parameters of layernorms are f32. The gradients of all parameters are f32.
enum class Role { activation, parameter, norm };

// An input of normally distributed random numbers.
struct RealInput {
  Shape shape;
  double scale = 1;
  double mean = 0;
  bool differentiable = true;
  Role role = Role::activation;
};

// A parameter of an op other than layernorm.
inline RealInput parameter(Shape shape, double scale = 1) { return {shape, scale, 0, true, Role::parameter}; }

// An input of integers in [0, range).
struct IdInput {
  Shape shape;
  std::int32_t range;
};

struct OpCase {
  using Build =
      std::function<std::vector<Var>(Tape& tape, const std::vector<Var>& x, const std::vector<Tensor>& ids)>;

  std::string name;  // letters, digits and underscores
  std::vector<RealInput> reals;
  std::vector<IdInput> ids;
  std::int64_t K;        // length of the longest sum, forward or backward
  Build build;           // records the op and returns its outputs, or only the outputs that the case uses
  bool is_loss = false;  // the output is the loss of the tape: no op may use it
};

const std::vector<OpCase>& op_cases();

// For the messages of failing tests.
inline std::ostream& operator<<(std::ostream& out, const OpCase& op) { return out << op.name; }

}  // namespace stagegpt::test
