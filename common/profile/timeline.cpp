#include "common/profile/timeline.h"

#include <chrono>

namespace stagegpt {

std::int64_t Timeline::now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

void Timeline::clear() {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  spans_.reserve(kCapacity);
  lost_ = 0;
  phase_.name = "";
}

void Timeline::record(bool recording) {
  const std::lock_guard lock(mutex_);  // whoever adds a span now, has added it
  recording_ = recording;
}

void Timeline::add(const TimelineSpan& span) {
  const std::lock_guard lock(mutex_);
  if (!recording()) return;
  if (spans_.size() < spans_.capacity()) {
    spans_.push_back(span);
  } else {
    ++lost_;
  }
}

void Timeline::enter(const char* name) {
  if (!recording()) return;
  const std::int64_t time = now();
  if (phase_.name[0] != '\0') {
    phase_.end = time;
    end_range();
    add(phase_);
  }
  if (name[0] != '\0') begin_range(name);
  phase_.name = name;
  phase_.begin = time;
}

}  // namespace stagegpt
