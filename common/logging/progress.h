// What a person sees while a run goes on, on standard error: one line that is rewritten on a terminal, plain
// lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/io/status_line.h"
#include "common/train/trainer.h"

namespace stagegpt {

struct ProgressState {
  std::int64_t done = 0, steps = 1;
  double loss = 0;
  std::optional<double> validation_loss;
  double learning_rate = 0, grad_norm = 0;
  double tokens_per_second = 0;
  double seconds_left = 0;
};

// At most `width` characters, with a bar whose size depends on `width` alone. Where there is little room,
// learning rate, norm, speed, validation loss, step and loss give way, in this order. With npos, for a file,
// all but the bar.
std::string progress_line(const ProgressState& state, std::size_t width);

// How far a validation is that has taken `seconds`: tokens done of those to do, at least one.
std::string validation_line(std::int64_t done, std::int64_t total, double seconds);

class Progress {
 public:
  // Of a run that has done `first` of `steps` steps.
  Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step);

  // After each step, with the validation loss where one was taken. Plain lines come at intervals, and
  // whenever there is a validation loss; a terminal's line ten times a second.
  void step(const StepReport& report, std::optional<double> validation_loss);

  // While a validation goes on: tokens done of those to do. Shown when it takes longer than a second.
  void validation(std::int64_t done, std::int64_t total);

  // Lines of their own.
  void note(const std::string& text) { status_.print_above(text); }

  // Over the steps since it was made; 0 where there were none.
  double tokens_per_second() const;

 private:
  ProgressState state(std::optional<double> validation_loss) const;

  std::int64_t first_, steps_;
  std::int64_t tokens_per_step_;
  StatusLine status_;
  using Time = std::chrono::steady_clock::time_point;
  Time start_ = std::chrono::steady_clock::now(), shown_, validation_start_;
  StepReport last_;
  double training_seconds_ = 0;
  std::optional<double> validation_loss_;
};

}  // namespace stagegpt
