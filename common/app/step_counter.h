// The progress of work in equal parts, on standard error: "step 7/18  ETA 0:35".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "common/io/status_line.h"

namespace stagegpt {

// Silent for the first second. Then it updates a terminal after each step; elsewhere it writes a line every
// ten seconds.
class StepCounter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The work starts now; `part` names one of its parts.
  explicit StepCounter(Time now = std::chrono::steady_clock::now(), std::string part = "step")
      : part_(std::move(part)), start_(now) {}

  void operator()(std::int64_t done, std::int64_t total) {
    at(std::chrono::steady_clock::now(), done, total);
  }
  // Progress at a given time, for tests.
  void at(Time now, std::int64_t done, std::int64_t total);

 private:
  std::string part_;
  StatusLine status_;
  Time start_, plain_ = start_;
};

}  // namespace stagegpt
