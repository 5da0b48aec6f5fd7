// Times the phases of a step. On a GPU it measures the device's time, not the launch time. The host does not
// wait during a step, so that launches stay asynchronous.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/backend/work_timer.h"
#include "common/logging/step_report.h"

namespace stagegpt {

class PhaseClock {
 public:
  using Phase = double PhaseSeconds::*;

  explicit PhaseClock(std::unique_ptr<WorkTimer> timer) : timer_(std::move(timer)) {}

  // Starts the first phase.
  void start() {
    discard();
    timer_->mark();
  }
  // Ends a phase, which began at the last call of start() or end().
  void end(Phase phase) {
    timer_->mark();
    ended_.push_back(phase);
  }
  // Waits for the work, and adds the time of each phase since start(). The next call must be start().
  void add_to(PhaseSeconds& seconds) {
    const std::vector<double> intervals = timer_->take_intervals();
    for (std::size_t i = 0; i < ended_.size(); ++i) seconds.*ended_[i] += intervals[i];
    ended_.clear();
  }

 private:
  // Removes the marks of a step that has ended by an exception.
  void discard() {
    if (ended_.empty()) return;
    timer_->take_intervals();
    ended_.clear();
  }

  std::unique_ptr<WorkTimer> timer_;
  std::vector<Phase> ended_;
};

}  // namespace stagegpt
