// Where two contestants part: the first tensor of a step that differs by more than it may.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/compare/checks.h"
#include "tools/compare/runner.h"

namespace stagegpt::compare {

struct FirstTensor {
  std::string text;       // for a reader; that it is not known, and why, for one; empty: nobody has looked
  std::int64_t step = 0;  // 0 where it is not known
  std::string tensor = {};
  double error = 0, limit = 0;  // relative, L2
};

// Runs both contestants of a check once more, up to the step at which they disagree, with their tensors
// written down (--trace-steps). The traces of the step with that tensor are kept.
FirstTensor first_divergent_tensor(const Runner& runner, const std::vector<Entry>& entries,
                                   const Check& check, const Limits& limits);

}  // namespace stagegpt::compare
