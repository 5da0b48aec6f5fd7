// The table of op cases: every op, at sizes that are odd on purpose. The op tests run all cases on every
// backend. A new op, or a size that once failed, is one more row.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/autograd/tape.h"

namespace stagegpt::test {

// An input of normal numbers.
struct RealInput {
  Shape shape;
  double scale = 1;
  double mean = 0;
  bool differentiable = true;
};

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
  std::int64_t K;  // length of the longest sum, forward or backward
  Build build;     // records the op and returns its outputs, or those that are used
};

const std::vector<OpCase>& op_cases();

// What a failing test shows of a case.
inline std::ostream& operator<<(std::ostream& out, const OpCase& op) { return out << op.name; }

}  // namespace stagegpt::test
