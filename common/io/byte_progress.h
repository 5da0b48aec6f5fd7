// Progress of a job that processes bytes: "train  123.0 / 1024.0 MB  25.1 MB/s  ETA 0:35".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/io/status_line.h"

namespace stagegpt {

// Prints nothing in the first second, so short jobs print nothing. Then it updates a terminal ten times a
// second, and prints a line every ten seconds elsewhere.
class ByteProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A job that starts now.
  explicit ByteProgress(std::string job, Time now = std::chrono::steady_clock::now())
      : job_(std::move(job)), start_(now) {}

  void operator()(std::int64_t done, std::int64_t total) {
    at(std::chrono::steady_clock::now(), done, total);
  }
  // Progress at a given time, for tests.
  void at(Time now, std::int64_t done, std::int64_t total);

 private:
  std::string line(std::int64_t done, std::int64_t total, double seconds) const;

  std::string job_;
  StatusLine status_;
  Time start_, shown_ = start_, plain_ = start_;
};

}  // namespace stagegpt
