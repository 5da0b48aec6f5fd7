// DIR/results.json and DIR/results.csv. Their fields: docs/compare.md.
#pragma once

#include <string>

#include "common/base/json_fwd.h"
#include "tools/compare/comparison.h"

namespace stagegpt::compare {

inline constexpr const char* kFormat = "stagegpt comparison";
inline constexpr int kVersion = 1;

Json results_json(const Comparison& comparison);

// A header line, then a line for each trial.
std::string results_csv(const Comparison& comparison);

}  // namespace stagegpt::compare
