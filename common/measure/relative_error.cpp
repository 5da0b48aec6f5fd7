#include "common/measure/relative_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/error.h"

namespace stagegpt {

void SquaredError::add(std::span<const float> actual, std::span<const float> expected_values) {
  check(actual.size() == expected_values.size(), "relative error: ", actual.size(), " elements and ",
        expected_values.size());
  for (std::size_t i = 0; i < expected_values.size(); ++i) {
    const double x = expected_values[i], d = static_cast<double>(actual[i]) - x;
    difference += d * d;
    expected += x * x;
  }
}

double SquaredError::relative(double floor) const {
  if (difference == 0) return 0;
  const double scale = std::max(std::sqrt(expected), floor);
  return scale == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference) / scale;
}

double relative_error(std::span<const float> actual, std::span<const float> expected, double floor) {
  SquaredError error;
  error.add(actual, expected);
  return error.relative(floor);
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

}  // namespace stagegpt
