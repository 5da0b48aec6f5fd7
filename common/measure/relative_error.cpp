#include "common/measure/relative_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/error.h"

namespace stagegpt {

double relative_error(std::span<const float> actual, std::span<const float> expected, double floor) {
  check(actual.size() == expected.size(), "relative error: ", actual.size(), " elements and ",
        expected.size());
  double difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    difference += d * d;
  }
  if (difference == 0) return 0;
  const double scale = std::max(norm(expected), floor);
  return scale == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference) / scale;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

}  // namespace stagegpt
