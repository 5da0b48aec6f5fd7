// Which rank holds the others up for long enough to be worth a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace stagegpt {

// Ranks that divide the work evenly all wait for the slowest one. A single step says little: over each kSteps
// of them, a rank is slow when it has taken more than kFactor times the median of the others.
class SlowRanks {
 public:
  static constexpr std::int64_t kSteps = 50;
  static constexpr double kFactor = 1.5;

  struct Slow {
    int rank;
    double factor;  // its time over the median of the others'
  };

  // Takes the seconds of a step by rank, without those in which ranks wait for each other. The slowest rank
  // after each kSteps, where it is slow and has not been named before.
  std::optional<Slow> add(std::span<const double> seconds);

 private:
  std::vector<double> sums_;  // by rank, of the steps since the last kSteps were complete
  std::int64_t steps_ = 0;
  std::set<int> named_;
};

}  // namespace stagegpt
