// Measures the time of each op of a backend, and the work that it did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/backend/op_observer.h"

namespace stagegpt {

// Waits for each op to finish before the next one starts: a profiled step is slower than others.
class Profiler final : public OpObserver {
 public:
  // All calls of one op.
  struct Entry {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;  // wall-clock time
    Work work = {};
  };

  using OpObserver::OpObserver;
  void around(const OpCall& op, const std::function<void()>& kernel) override;
  // The op with the longest time first.
  std::vector<Entry> entries() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace stagegpt
