#include "common/train/slow_ranks.h"

#include <algorithm>
#include <utility>

namespace stagegpt {

std::optional<SlowRanks::Slow> SlowRanks::add(std::span<const double> seconds) {
  if (seconds.size() < 2) return std::nullopt;
  sums_.resize(seconds.size());
  for (std::size_t i = 0; i < seconds.size(); ++i) sums_[i] += seconds[i];
  if (++steps_ < kSteps) return std::nullopt;
  std::vector<double> others = std::exchange(sums_, {});
  steps_ = 0;
  const auto slowest = std::ranges::max_element(others);
  const int rank = static_cast<int>(slowest - others.begin());
  const double most = *slowest;
  others.erase(slowest);
  const auto middle = others.begin() + std::ssize(others) / 2;
  std::ranges::nth_element(others, middle);
  const double factor = most / *middle;
  if (factor <= kFactor || !named_.insert(rank).second) return std::nullopt;
  return Slow{rank, factor};
}

}  // namespace stagegpt
