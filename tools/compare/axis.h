// From numbers to places along an axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

class Axis {
 public:
  // Round numbers from `low` to `high` or a little further, about `count` of them, from `begin` to `end` in
  // the plot's units.
  static Axis linear(double low, double high, int count, double begin, double end);
  // Powers of ten. Below the lowest there is one more step for 0.
  static Axis logarithmic(double low, double high, double begin, double end);

  // Of a value beyond an end: that end. Of NaN: the far end.
  double place(double value) const;
  const std::vector<std::pair<double, std::string>>& ticks() const { return ticks_; }

 private:
  Axis(bool logarithmic, double low, double high, double begin, double end)
      : logarithmic_(logarithmic), low_(low), high_(high), begin_(begin), end_(end) {}

  bool logarithmic_;
  double low_, high_;  // of a logarithmic one, of the logarithm
  double begin_, end_;
  std::vector<std::pair<double, std::string>> ticks_;
};

}  // namespace stagegpt::compare
