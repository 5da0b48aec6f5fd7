// Detects a rank that delays the others.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace stagegpt {

// Ranks with equal work all wait for the slowest one. Because single steps vary, times are added over kSteps
// steps: a rank is slow if its time is more than kFactor times the median of the others.
class SlowRanks {
 public:
  static constexpr std::int64_t kSteps = 50;
  static constexpr double kFactor = 1.5;

  struct Slow {
    int rank;
    double factor;  // its time divided by the median of the others
  };

  // Adds the seconds of a step by rank, without the time of communication. After every kSteps steps, returns
  // the slowest rank if it is slow and has not been returned before.
  std::optional<Slow> add(std::span<const double> seconds);

 private:
  std::vector<double> sums_;  // by rank, over the current kSteps steps
  std::int64_t steps_ = 0;
  std::set<int> named_;
};

}  // namespace stagegpt
