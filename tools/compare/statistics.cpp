#include "tools/compare/statistics.h"

#include <algorithm>

#include "common/base/error.h"

namespace stagegpt::compare {

double median(std::vector<double> values) {
  check(!values.empty(), "median: expected at least one value, got none");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Spread spread(const std::vector<double>& values) {
  return {median(values), *std::ranges::min_element(values), *std::ranges::max_element(values)};
}

}  // namespace stagegpt::compare
