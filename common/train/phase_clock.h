// How long each phase of a step takes, as the backend's work is done: on a GPU the device's time, not the
// time of launching. Measuring does not wait, so that the host can run ahead of the device.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/backend/work_timer.h"

namespace stagegpt {

// Seconds of each phase of a step. The time in which a rank waits for others during backward is communication.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, communication = 0, optimizer = 0;

  double total() const { return data + forward + backward + communication + optimizer; }
};

class PhaseClock {
 public:
  using Phase = double PhaseSeconds::*;

  explicit PhaseClock(std::unique_ptr<WorkTimer> timer) : timer_(std::move(timer)) {}

  // The first phase begins.
  void start() {
    discard();
    timer_->mark();
  }
  // What came since the last call of start() or end() was of this phase.
  void end(Phase phase) {
    timer_->mark();
    ended_.push_back(phase);
  }
  // Waits for the work, and adds the time of each phase since start(), which is to be called again before
  // end().
  void add_to(PhaseSeconds& seconds) {
    const std::vector<double> intervals = timer_->take_intervals();
    for (std::size_t i = 0; i < ended_.size(); ++i) seconds.*ended_[i] += intervals[i];
    ended_.clear();
  }

 private:
  // After a step that an exception has ended.
  void discard() {
    if (ended_.empty()) return;
    timer_->take_intervals();
    ended_.clear();
  }

  std::unique_ptr<WorkTimer> timer_;
  std::vector<Phase> ended_;
};

}  // namespace stagegpt
