// Plots as SVG, to stand inside a page: colours and letters are those of its style sheet (page_style.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

// What a line or a bar belongs to has the same colour and dashes in every plot.
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
  std::string title, description;  // the description is for those who cannot see the plot
  std::string x_label, y_label;
  std::vector<Series> series;
  bool logarithmic = false;  // y; what is 0 stands on the ground
  bool from_zero = false;    // both axes begin at 0
  bool dots = false;         // a mark at each point
  std::optional<double> limit = {};
  std::string limit_name = {};
  bool ideal = false;  // a line y = x
};

// A bar for each, with its value, and a line from the least to the most.
struct BarPlot {
  struct Bar {
    std::string name;
    Look look;
    double value = 0, min = 0, max = 0;
    std::string text;  // the value, written out
  };
  std::string title, description;
  std::vector<Bar> bars;
};

// A bar for each, as long as the others, divided into parts.
struct PartsPlot {
  struct Bar {
    std::string name, text;
    std::vector<double> parts;
  };
  std::string title, description;
  std::vector<std::string> part_names;
  std::vector<Bar> bars;
};

// A <figure> with heading, plot and legend. `id` is unlike any other in the page.
std::string figure(const LinePlot& plot, const std::string& id);
std::string figure(const BarPlot& plot, const std::string& id);
std::string figure(const PartsPlot& plot, const std::string& id);

}  // namespace stagegpt::compare
