// Medians and spreads.
#pragma once

#include <vector>

namespace stagegpt::compare {

// For an even number of values, the mean of the middle two. Throws InternalError if there are none.
double median(std::vector<double> values);

struct Spread {
  double median = 0, min = 0, max = 0;
  bool operator==(const Spread&) const = default;
};
Spread spread(const std::vector<double>& values);

}  // namespace stagegpt::compare
