// Records the ops of a backend in a timeline. Unlike Profiler, it does not wait for an op to finish.
//
// Where a device computes, the span of an op on the host is that of its launches. A second span, in the row
// of the device, is measured by two marks in the device's stream (WorkTimer): the time from the end of the
// work before the op to the end of the op. The first mark of a step, which an idle device reaches at once,
// gives both clocks a common time.
#pragma once

#include <memory>
#include <vector>

#include "common/backend/op_observer.h"
#include "common/profile/timeline.h"

namespace stagegpt {

class OpTimeline final : public OpObserver {
 public:
  // Records the ops until finish(). `timer` is null if the backend has no device; otherwise the constructor
  // waits for the device.
  OpTimeline(Backend& backend, Timeline& timeline, WorkTimer* timer);
  void around(const OpCall& op, const std::function<void()>& kernel) override;
  // Waits for the device, and records the spans of its row.
  void finish();

 private:
  Timeline& timeline_;
  WorkTimer* timer_;
  std::int64_t first_mark_ = 0;         // the host's time
  std::vector<TimelineSpan> launched_;  // ops on the device, in their order
};

}  // namespace stagegpt
