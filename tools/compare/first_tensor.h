// Finds the first tensor by which two contestants differ by more than the limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/compare/checks.h"
#include "tools/compare/runner.h"

namespace stagegpt::compare {

struct FirstTensor {
  std::string text;       // for the user; if the tensor is unknown, the reason; empty: not searched for
  std::int64_t step = 0;  // 0 if the tensor is unknown
  std::string tensor = {};
  double error = 0, limit = 0;  // relative, L2
};

// Runs both contestants of a check again with --trace-steps, up to the step at which they disagree. Keeps the
// traces of the step of that tensor.
FirstTensor first_divergent_tensor(const Runner& runner, const std::vector<Entry>& entries,
                                   const Check& check, const Limits& limits);

}  // namespace stagegpt::compare
