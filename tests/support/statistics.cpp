#include "tests/support/statistics.h"

#include <cmath>

namespace stagegpt::test {

double correlation(std::span<const double> a, std::span<const double> b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = moment(a, 1), mean_b = moment(b, 1);
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb) * std::sqrt(n);
}

double correlation_at(std::span<const double> a, std::size_t lag) {
  return correlation(a.first(a.size() - lag), a.subspan(lag));
}

double moment(std::span<const double> x, int power) {
  double sum = 0;
  for (const double value : x) {
    double product = 1;
    for (int i = 0; i < power; ++i) product *= value;
    sum += product;
  }
  return sum / static_cast<double>(x.size());
}

double chi_squared_deviation(std::span<const int> counts) {
  double total = 0, sum = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  const auto degrees = static_cast<double>(counts.size() - 1);
  return (sum - degrees) / std::sqrt(2 * degrees);
}

}  // namespace stagegpt::test
