// Wall-clock time and work by op. Off unless a Profiler is attached to a backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/backend/work.h"

namespace stagegpt {

class Profiler {
 public:
  struct Entry {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;
    Work work = {};
  };

  void add(const char* name, double seconds, const Work& work);
  void reset() { entries_.clear(); }
  // Longest first.
  std::vector<Entry> entries() const;

 private:
  std::vector<Entry> entries_;
};

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace stagegpt
