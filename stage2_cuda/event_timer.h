// Times the work of a stream by events, which the device records when it reaches them; the host does not
// wait.
#pragma once

#include <deque>

#include "common/backend/work_timer.h"
#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {

class EventTimer final : public WorkTimer {
 public:
  explicit EventTimer(StreamHandle stream) : stream_(stream) {}

  void mark() override {
    if (marks_ == events_.size()) events_.emplace_back(EventKind::time);
    record(events_[marks_++], stream_);
  }

  std::vector<double> take_intervals() override {
    std::vector<double> seconds;
    if (marks_ > 0 && !is_done(events_[marks_ - 1])) wait_for(events_[marks_ - 1]);
    for (std::size_t i = 1; i < marks_; ++i) {
      seconds.push_back(1e-3 * static_cast<double>(milliseconds_between(events_[i - 1], events_[i])));
    }
    marks_ = 0;
    return seconds;
  }

 private:
  StreamHandle stream_;
  std::deque<Event> events_;  // reused in the next step
  std::size_t marks_ = 0;     // number of recorded events
};

}  // namespace stagegpt::gpu
