// Measures when a backend has done its work, without waiting for it meanwhile.
#pragma once

#include <chrono>
#include <vector>

namespace stagegpt {

class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  // Marks a point in the order of the backend's work: the time at which all work given before it is done.
  // Returns at once.
  virtual void mark() = 0;
  // Waits for the last mark, and returns the seconds between each mark and the next one. Forgets all marks.
  virtual std::vector<double> take_intervals() = 0;
};

// For a backend that has done its work when an op returns.
class HostTimer final : public WorkTimer {
 public:
  void mark() override { marks_.push_back(std::chrono::steady_clock::now()); }
  std::vector<double> take_intervals() override {
    std::vector<double> seconds;
    for (std::size_t i = 1; i < marks_.size(); ++i) {
      seconds.push_back(std::chrono::duration<double>(marks_[i] - marks_[i - 1]).count());
    }
    marks_.clear();
    return seconds;
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace stagegpt
