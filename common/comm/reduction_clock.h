// Measures the reductions of a step: their bytes, and the time during which at least one is in progress.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/backend/work_timer.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

class ReductionClock {
 public:
  explicit ReductionClock(std::unique_ptr<WorkTimer> timer) : timer_(std::move(timer)) {}

  // Call before a reduction of these gradients.
  void start(const Tensor& grads) {
    start();
    bytes_reduced_ += static_cast<std::int64_t>(grads.bytes());
  }
  // Call before other communication of the step.
  void start() {
    if (!running_) timer_->mark();
    running_ = true;
  }
  // Call after the backend, or its stream, has waited for all communication that was started.
  void stop() {
    timer_->mark();
    running_ = false;
  }
  // The report of all communication since the last call. Waits for the backend's work.
  CommunicationReport take_report() {
    CommunicationReport report{.bytes_reduced = bytes_reduced_};
    const std::vector<double> intervals = timer_->take_intervals();  // alternately communication and a pause
    for (std::size_t i = 0; i < intervals.size(); i += 2) report.seconds_under_way += intervals[i];
    bytes_reduced_ = 0;
    return report;
  }

 private:
  std::unique_ptr<WorkTimer> timer_;
  std::int64_t bytes_reduced_ = 0;
  bool running_ = false;
};

}  // namespace stagegpt
