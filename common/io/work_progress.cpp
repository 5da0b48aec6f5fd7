#include "common/io/work_progress.h"

#include <algorithm>
#include <cstdio>

#include "common/base/error.h"

namespace stagegpt {

void WorkProgress::at(Time now, std::int64_t done, std::int64_t total) {
  constexpr double kSilent = 1, kPlainInterval = 10;
  const auto since = [&](Time then) { return std::chrono::duration<double>(now - then).count(); };
  const bool plain = since(plain_) >= kPlainInterval;
  const bool due = since(shown_) >= interval_ || (done == total && shown_ != start_);
  if (since(start_) < kSilent || !due) return;
  shown_ = now;
  if (plain) plain_ = now;
  status_.show(plain, [&](std::size_t width) { return line(done, total, since(start_)).substr(0, width); });
  if (done == total) status_.end();
}

std::string ByteProgress::line(std::int64_t done, std::int64_t total, double seconds) const {
  constexpr double kMegabyte = 1e6;
  const double rate = static_cast<double>(std::max<std::int64_t>(1, done)) / seconds;
  char text[200];
  std::snprintf(text, sizeof text, "%s  %.1f / %.1f MB  %.1f MB/s  ETA %s", job_.c_str(),
                static_cast<double>(done) / kMegabyte, static_cast<double>(total) / kMegabyte,
                rate / kMegabyte, clock_time(static_cast<double>(total - done) / rate).c_str());
  return text;
}

std::string StepCounter::line(std::int64_t done, std::int64_t total, double seconds) const {
  const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
  return concat(part_, ' ', done, '/', total, "  ETA ", clock_time(left));
}

}  // namespace stagegpt
