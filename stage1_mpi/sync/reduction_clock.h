// Counts what a step's reductions take.
#pragma once

#include <chrono>

#include "common/base/seconds_since.h"
#include "common/comm/gradient_sync.h"

namespace stagegpt {

class ReductionClock {
 public:
  // A reduction of these gradients begins. The first one after stop() begins a step.
  void start(const Tensor& grads) {
    if (!running_) {
      current_ = {};
      begin_ = std::chrono::steady_clock::now();
      running_ = true;
    }
    current_.bytes_reduced += static_cast<std::int64_t>(grads.bytes());
  }
  // The last one has ended.
  void stop() {
    current_.seconds_under_way += seconds_since(begin_);
    running_ = false;
  }
  // What belongs to the same step begins.
  void go_on() {
    begin_ = std::chrono::steady_clock::now();
    running_ = true;
  }
  CommunicationReport report() const { return current_; }

 private:
  CommunicationReport current_;
  std::chrono::steady_clock::time_point begin_;
  bool running_ = false;
};

}  // namespace stagegpt
