// The progress of a run on standard error: one line that is rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/io/status_line.h"
#include "common/logging/step_report.h"

namespace stagegpt {

struct ProgressState {
  std::int64_t done = 0, steps = 1;
  double loss = 0;
  std::optional<double> validation_loss;
  double learning_rate = 0, grad_norm = 0;
  double tokens_per_second = 0;
  double seconds_left = 0;
};

// A line of at most `width` characters, with a bar whose size depends on `width` only. If there is no room
// for all fields, they are dropped in this order: learning rate, norm, speed, validation loss, step, loss.
// With npos, for a file: all fields, without the bar.
std::string progress_line(const ProgressState& state, std::size_t width);

// The progress of a validation that has taken `seconds`: tokens done (at least one) and in total.
std::string validation_line(std::int64_t done, std::int64_t total, double seconds);

class Progress {
 public:
  // For a run that has done `first` of `steps` steps.
  Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step);

  // Call after each step, with the validation loss if one was measured and the seconds that it took, and the
  // share of the work that is done since the first one began, by which the rest of the time is estimated.
  // Plain lines are printed at intervals and for each validation loss; a terminal's line is updated ten times
  // a second.
  void step(const StepReport& report, std::optional<double> validation_loss, double share_done,
            double validation_seconds = 0);

  // Call during a validation, with the tokens done and in total. Shown if it takes longer than a second.
  void validation(std::int64_t done, std::int64_t total);

  // Prints text on lines of its own. On a terminal the line of the last step is below it.
  void note(const std::string& text);

  // Of the steps since construction, without what comes between them.
  double training_seconds() const { return training_seconds_; }
  // The mean over these steps; 0 if there were none.
  double tokens_per_second() const;

 private:
  ProgressState state(std::optional<double> validation_loss) const;

  std::int64_t first_, steps_;
  std::int64_t tokens_per_step_;
  StatusLine status_;
  using Time = std::chrono::steady_clock::time_point;
  Time start_, shown_, validation_start_;
  StepReport last_;
  bool is_shown_ = true;  // the last step
  double training_seconds_ = 0, share_done_ = 0;
  std::optional<double> validation_loss_;
};

}  // namespace stagegpt
