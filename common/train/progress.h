// What a person sees while a run goes on, on standard error: one line that is rewritten on a terminal, plain
// lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/train/trainer.h"

namespace stagegpt {

class Progress {
 public:
  Progress(std::int64_t steps, std::int64_t tokens_per_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  // A validation loss, after the step last reported; a plain line shows it at once.
  void validation(double loss);

  double tokens_per_second() const;

 private:
  std::string line() const;
  void print(bool plain_line);

  std::int64_t steps_;
  std::int64_t tokens_per_step_;
  bool terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  StepReport last_;
  double training_seconds_ = 0;
  std::optional<double> validation_loss_;
};

}  // namespace stagegpt
