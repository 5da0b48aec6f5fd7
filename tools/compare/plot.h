// Plots as SVG inside a page, with the colours and fonts of its style sheet (page_style.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

// Maps numbers to positions along an axis.
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

// Colour and dashes of a line or a bar. A contestant has the same ones in all plots.
struct Look {
  int stage = 0;   // its colour
  int dashes = 0;  // 0: a solid line
  bool wide = false;
};

struct Series {
  std::string name;
  Look look;
  std::vector<std::pair<double, double>> points;
};

struct LinePlot {
  std::string title, description;  // the description is for screen readers
  std::string x_label, y_label;
  std::vector<Series> series;
  bool logarithmic = false;  // y axis; 0 is at its lower end
  bool from_zero = false;    // both axes start at 0
  bool dots = false;         // a dot at each point
  std::optional<double> limit = {};
  std::string limit_name = {};
  bool ideal = false;  // a line y = x
};

// Bars with their values; a line on each bar shows the range from minimum to maximum.
struct BarPlot {
  struct Bar {
    std::string name;
    Look look;
    double value = 0, min = 0, max = 0;
    std::string text;  // the value as text
  };
  std::string title, description;
  std::vector<Bar> bars;
};

// Bars of equal length, divided into parts.
struct PartsPlot {
  struct Bar {
    std::string name, text;
    std::vector<double> parts;
  };
  std::string title, description;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
};

// A <figure> with heading, plot and legend. `id` must be unique in the page.
std::string figure(const LinePlot& plot, const std::string& id);
std::string figure(const BarPlot& plot, const std::string& id);
std::string figure(const PartsPlot& plot, const std::string& id);

}  // namespace stagegpt::compare
