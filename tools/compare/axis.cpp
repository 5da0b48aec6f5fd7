#include "tools/compare/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "tools/compare/numbers.h"

namespace stagegpt::compare {
namespace {

// Rounds up to 1, 2 or 5 times a power of ten.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Axis Axis::linear(double low, double high, int count, double begin, double end) {
  if (!(high > low)) high = low + std::max(1e-9, std::abs(low) * 1e-3);
  const double step = round_step((high - low) / count);
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  Axis axis(false, first * step, last * step, begin, end);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  for (double i = first; i <= last; ++i) axis.ticks_.emplace_back(i * step, grouped(i * step, decimals));
  return axis;
}

Axis Axis::logarithmic(double low, double high, double begin, double end) {
  const double first = std::floor(std::log10(low) + 1e-9), last = std::ceil(std::log10(high) - 1e-9);
  Axis axis(true, first - 1, std::max(last, first + 1), begin, end);
  axis.ticks_.emplace_back(0, "0");
  for (double i = first; i <= axis.high_; ++i) axis.ticks_.emplace_back(std::pow(10, i), concat("1e", i));
  return axis;
}

double Axis::place(double value) const {
  if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
  if (logarithmic_) value = value > 0 ? std::log10(value) : low_;
  return begin_ + (std::clamp(value, low_, high_) - low_) / (high_ - low_) * (end_ - begin_);
}

}  // namespace stagegpt::compare
