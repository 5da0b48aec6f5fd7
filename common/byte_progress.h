// How far a job over bytes is: "train  123.0 / 1024.0 MB  25.1 MB/s  ETA 0:35".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/status_line.h"

namespace stagegpt {

// Silent for the first second: short jobs need no line. Then ten times a second on a terminal, elsewhere a
// line every ten seconds.
class ByteProgress {
 public:
  explicit ByteProgress(std::string job) : job_(std::move(job)) {}

  void operator()(std::int64_t done, std::int64_t total);

 private:
  using Time = std::chrono::steady_clock::time_point;

  std::string line(std::int64_t done, std::int64_t total, double seconds) const;

  std::string job_;
  StatusLine status_;
  Time start_ = std::chrono::steady_clock::now(), shown_ = start_, plain_ = start_;
};

}  // namespace stagegpt
