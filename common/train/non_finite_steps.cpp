#include "common/train/non_finite_steps.h"

#include "common/base/error.h"

namespace stagegpt {
namespace {

std::string counted(std::int64_t steps) { return concat(steps, steps == 1 ? " step" : " steps"); }

}  // namespace

void NonFiniteSteps::count(const StepReport& report) {
  last_ = !report.finite();
  steps_ += last_;
  skipped_ += report.skipped();
  in_a_row_ = report.skipped() ? in_a_row_ + 1 : 0;
}

bool NonFiniteSteps::end_run() const {
  return last_ && (rule_ == NonFinite::stop || in_a_row_ == kMostInARow);
}

std::string NonFiniteSteps::description(const StepReport& report, const std::string& first) const {
  const std::string what = concat("step ", report.step + 1, ": ", first, " is not finite (loss ", report.loss,
                                  ", gradient norm ", report.grad_norm, ")");
  if (rule_ == NonFinite::stop) return what;
  const bool is_last = steps_ == kTold && !end_run();
  return concat(what, "; ", counted(skipped_), " skipped",
                end_run() ? concat(", ", in_a_row_, " in a row") : "",
                is_last ? "; further ones are counted but not reported" : "");
}

std::string NonFiniteSteps::summary() const {
  if (steps_ == 0) return "";
  return concat("note: loss or gradient not finite in ", counted(steps_), ", ", counted(skipped_),
                " skipped");
}

}  // namespace stagegpt
