// Finds the tensor in which infinity or NaN first occurs.
#pragma once

#include <cstdint>
#include <string>

#include "common/data/batch_stream.h"
#include "common/logging/step_report.h"
#include "common/model/language_model.h"
#include "common/parallel/grid.h"

namespace stagegpt {

// Removes the sign of a NaN, which is meaningless and would be printed as "-nan".
double unsigned_nan(double x);

// After a step whose loss or gradient is not finite: describes the first tensor of all ranks with infinity or
// NaN: "the weight h.3.mlp.c_fc.weight", "the output of h.3.mlp.c_fc (linear)", "the output of attention,
// after h.3.attn.c_attn", "the gradient of h.3.mlp.c_fc.weight". `batches` has just given that step's
// samples, and gives them again. It repeats the forward pass, and checks the gradients if all tensors there
// are finite. A collective call.
std::string first_non_finite(Backend& backend, const Grid& grid, const LanguageModel& model,
                             BatchStream& batches, std::uint64_t seed, std::int64_t step);

// What a run does about steps whose loss or gradient is not finite. stop: the run ends with the first such
// step. skip: it ends after a hundred skipped steps in a row. Weights are never updated with a gradient that
// is not finite.
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
