// What a run does about steps whose loss or gradient is not finite.
#pragma once

#include <cstdint>
#include <string>

#include "common/logging/step_report.h"

namespace stagegpt {

// stop: the run ends with the first such step. skip: it ends after a hundred skipped steps in a row. Weights
// are never updated with a gradient that is not finite.
enum class NonFinite : std::uint8_t { stop, skip };

// Counts the steps of this call. All ranks count the same.
class NonFiniteSteps {
 public:
  explicit NonFiniteSteps(NonFinite rule) : rule_(rule) {}

  // After each step.
  void count(const StepReport& report);
  // Whether the run ends with the step that was counted last.
  bool end_run() const;
  // Whether the user is told of that step: of the first ten, and of that which ends the run.
  bool is_told() const { return end_run() || steps_ <= kTold; }
  // What the user is told. `first` is the first tensor of the step that is not finite.
  std::string description(const StepReport& report, const std::string& first) const;
  // How many there were; empty if there were none.
  std::string summary() const;

 private:
  static constexpr std::int64_t kTold = 10, kMostInARow = 100;

  NonFinite rule_;
  bool last_ = false;                                    // whether the last step was one
  std::int64_t steps_ = 0, skipped_ = 0, in_a_row_ = 0;  // the last two of skipped steps
};

}  // namespace stagegpt
