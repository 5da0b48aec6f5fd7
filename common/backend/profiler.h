// Wall-clock time by op. Off unless a Profiler is attached to a backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace stagegpt {

class Profiler {
 public:
  struct Entry {
    std::string name;
    std::int64_t calls = 0;
    double seconds = 0;
  };

  void add(const char* name, double seconds);
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
