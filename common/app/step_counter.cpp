#include "common/app/step_counter.h"

#include "common/base/error.h"

namespace stagegpt {

void StepCounter::at(Time now, std::int64_t done, std::int64_t total) {
  constexpr double kSilent = 1, kPlainInterval = 10;
  const auto since = [&](Time then) { return std::chrono::duration<double>(now - then).count(); };
  const double seconds = since(start_);
  if (seconds < kSilent) return;
  const bool plain = since(plain_) >= kPlainInterval;
  if (plain) plain_ = now;
  const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
  status_.show(plain, [&](std::size_t width) {
    return concat(part_, ' ', done, '/', total, "  ETA ", clock_time(left)).substr(0, width);
  });
  if (done == total) status_.end();
}

}  // namespace stagegpt
