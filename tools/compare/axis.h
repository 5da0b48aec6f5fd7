// Maps numbers to positions along an axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

class Axis {
 public:
  // An axis with about `count` ticks at round numbers, which covers `low` to `high`, drawn from `begin` to
  // `end` in the plot's units.
  static Axis linear(double low, double high, int count, double begin, double end);
  // An axis with ticks at powers of ten, and one more tick below the lowest for 0.
  static Axis logarithmic(double low, double high, double begin, double end);

  // The position of a value. A value outside the axis is at its nearer end, NaN at the upper end.
  double place(double value) const;
  const std::vector<std::pair<double, std::string>>& ticks() const { return ticks_; }

 private:
  Axis(bool logarithmic, double low, double high, double begin, double end)
      : logarithmic_(logarithmic), low_(low), high_(high), begin_(begin), end_(end) {}

  bool logarithmic_;
  double low_, high_;  // of the logarithms, if the axis is logarithmic
  double begin_, end_;
  std::vector<std::pair<double, std::string>> ticks_;
};

}  // namespace stagegpt::compare
