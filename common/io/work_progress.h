// The progress of work on standard error. Silent for the first second, so that short work prints nothing.
// Then it updates a terminal; elsewhere it writes a line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/io/status_line.h"

namespace stagegpt {

class WorkProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~WorkProgress() = default;
  void operator()(std::int64_t done, std::int64_t total) {
    at(std::chrono::steady_clock::now(), done, total);
  }
  // Progress at a given time, for tests.
  void at(Time now, std::int64_t done, std::int64_t total);

 protected:
  // The work begins at `start`. A terminal is updated after so many seconds at the earliest.
  WorkProgress(Time start, double interval) : start_(start), interval_(interval) {}

 private:
  virtual std::string line(std::int64_t done, std::int64_t total, double seconds) const = 0;

  StatusLine status_;
  Time start_, shown_ = start_, plain_ = start_;
  double interval_;
};

// Of work on bytes: "train  123.0 / 1024.0 MB  25.1 MB/s  ETA 0:35".
class ByteProgress final : public WorkProgress {
 public:
  explicit ByteProgress(std::string job, Time start = std::chrono::steady_clock::now())
      : WorkProgress(start, /*interval=*/0.1), job_(std::move(job)) {}

 private:
  std::string line(std::int64_t done, std::int64_t total, double seconds) const override;

  std::string job_;
};

// Of work in equal parts, one of which `part` names: "step 7/18  ETA 0:35".
class StepCounter final : public WorkProgress {
 public:
  explicit StepCounter(Time start = std::chrono::steady_clock::now(), std::string part = "step")
      : WorkProgress(start, /*interval=*/0), part_(std::move(part)) {}

 private:
  std::string line(std::int64_t done, std::int64_t total, double seconds) const override;

  std::string part_;
};

}  // namespace stagegpt
