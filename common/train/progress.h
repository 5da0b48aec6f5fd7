// What a person sees while a run goes on, on standard error: one line that is rewritten on a terminal, plain
// lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/status_line.h"
#include "common/train/trainer.h"

namespace stagegpt {

class Progress {
 public:
  // Of a run that has done `first` of `steps` steps.
  Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step);

  // After each step, with the validation loss where one was taken. Plain lines come at intervals, and
  // whenever there is a validation loss.
  void step(const StepReport& report, std::optional<double> validation_loss);

  // A line of its own.
  void note(const std::string& text);

  // Over the steps since it was made; 0 where there were none.
  double tokens_per_second() const;

 private:
  // At most `width` characters: learning rate, norm and speed give way to loss and ETA, in this order.
  std::string line(std::optional<double> validation_loss, std::size_t width) const;

  std::int64_t first_, steps_;
  std::int64_t tokens_per_step_;
  StatusLine status_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StepReport last_;
  double training_seconds_ = 0;
  std::optional<double> validation_loss_;
};

}  // namespace stagegpt
