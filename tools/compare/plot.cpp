#include "tools/compare/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "common/base/error.h"
#include "tools/compare/table.h"
#include "tools/page/document.h"

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

// Size of the drawing, in units in which a letter is 12 high.
constexpr double kWidth = 460, kHeight = 280;
constexpr double kLeft = 60, kRight = 446, kTop = 12, kBottom = 236;
constexpr double kRow = 42, kBar = 14, kLetters = 16, kBarsRight = 350;
constexpr int kTicks = 5;

constexpr const char* kDashes[] = {"none", "7 4", "2 3", "9 3 2 3", "1 5", "12 3"};

std::string at(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string line(double x1, double y1, double x2, double y2, const std::string& css) {
  return concat("<line x1=\"", at(x1), "\" y1=\"", at(y1), "\" x2=\"", at(x2), "\" y2=\"", at(y2),
                "\" class=\"", css, "\"/>\n");
}

std::string text(double x, double y, const char* anchor, const std::string& words, const char* css = "") {
  return concat("<text x=\"", at(x), "\" y=\"", at(y), "\" text-anchor=\"", anchor, "\" class=\"", css, "\">",
                escaped(words), "</text>\n");
}

std::string box(double x, double y, double width, double height, const std::string& css) {
  return concat("<rect x=\"", at(x), "\" y=\"", at(y), "\" width=\"", at(std::max(width, 0.0)),
                "\" height=\"", at(height), "\" class=\"", css, "\"/>\n");
}

std::string colour(const Look& look) { return concat("stage", look.stage); }

std::string stroke(const Look& look) {
  const auto count = static_cast<int>(std::size(kDashes));
  return concat("class=\"line ", colour(look), look.wide ? " wide" : "", "\" stroke-dasharray=\"",
                kDashes[look.dashes % count], "\"");
}

std::string wrapped(const std::string& id, const std::string& title, const std::string& description,
                    double height, const std::string& drawing, const std::string& legend) {
  return concat("<figure aria-labelledby=\"", id, "-title\">\n<figcaption>", escaped(title),
                "</figcaption>\n<svg viewBox=\"0 0 ", kWidth, " ", height,
                "\" role=\"img\" aria-labelledby=\"", id, "-title ", id, "-text\">\n<title id=\"", id,
                "-title\">", escaped(title), "</title>\n<desc id=\"", id, "-text\">", escaped(description),
                "</desc>\n", drawing, "</svg>\n", legend, "</figure>\n");
}

std::string legend_item(const std::string& sample, const std::string& name) {
  return concat("<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\">", sample, "</svg>", escaped(name),
                "</li>\n");
}

// Minimum and maximum of all finite values; on a logarithmic axis, of the positive ones.
std::pair<double, double> range(const LinePlot& plot, bool of_y) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      const double value = of_y ? y : x;
      if (!std::isfinite(value) || (of_y && plot.logarithmic && value <= 0)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return low <= high ? std::pair(low, high) : std::pair(0.0, 1.0);
}

Axis x_axis(const LinePlot& plot) {
  const auto [low, high] = range(plot, false);
  return Axis::linear(plot.from_zero ? 0 : low, high, kTicks, kLeft, kRight);
}

Axis y_axis(const LinePlot& plot) {
  auto [low, high] = range(plot, true);
  if (plot.ideal) high = std::max(high, range(plot, false).second);
  if (!plot.logarithmic) return Axis::linear(plot.from_zero ? 0 : low, high, kTicks, kBottom, kTop);
  constexpr double kLowest = 1e-9;  // f32 resolves 6e-8
  low = low == 0 ? kLowest : std::min(low, kLowest);
  high = std::max(high, plot.limit.value_or(high) * 10);
  return Axis::logarithmic(low, high, kBottom, kTop);
}

std::string axes(const LinePlot& plot, const Axis& x, const Axis& y) {
  constexpr double kAbove = 4, kBeside = 8, kLetter = 12, kLabel = 30;
  std::string out;
  for (const auto& [value, name] : y.ticks()) {
    const double place = y.place(value);
    out += line(kLeft, place, kRight, place, "grid") + text(kLeft - kBeside, place + kAbove, "end", name);
  }
  for (const auto& [value, name] : x.ticks()) {
    out += text(x.place(value), kBottom + kLetter + kAbove, "middle", name);
  }
  out += text((kLeft + kRight) / 2, kBottom + kLetter + kLabel - kAbove, "middle", plot.x_label, "label");
  return out + line(kLeft, kBottom, kRight, kBottom, "axis");
}

std::string curve(const LinePlot& plot, const Series& series, const Axis& x, const Axis& y) {
  std::string points, dots;
  for (const auto& [px, py] : series.points) {
    const std::string cx = at(x.place(px)), cy = at(y.place(py));
    points += concat(cx, ",", cy, " ");
    if (plot.dots)
      dots +=
          concat("<circle cx=\"", cx, "\" cy=\"", cy, "\" r=\"4\" class=\"", colour(series.look), "\"/>\n");
  }
  return concat("<polyline ", stroke(series.look), " points=\"", points, "\"/>\n", dots);
}

std::string rulers(const LinePlot& plot, const Axis& x, const Axis& y) {
  constexpr double kAbove = 5;
  std::string out;
  if (plot.limit) {
    const double place = y.place(*plot.limit);
    out += line(kLeft, place, kRight, place, "limit") +
           text(kRight, place - kAbove, "end", plot.limit_name, "limit");
  }
  if (plot.ideal) {
    const double end = range(plot, false).second;
    out += line(x.place(0), y.place(0), x.place(end), y.place(end), "ideal");
  }
  return out;
}

double bars_height(std::size_t count) { return static_cast<double>(count) * kRow; }

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

std::string figure(const LinePlot& plot, const std::string& id) {
  const Axis x = x_axis(plot), y = y_axis(plot);
  std::string drawing = axes(plot, x, y), legend;
  for (const Series& series : plot.series) {
    drawing += curve(plot, series, x, y);
    legend += legend_item(concat("<line x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\" ", stroke(series.look), "/>"),
                          series.name);
  }
  drawing += rulers(plot, x, y);
  if (plot.ideal)
    legend += legend_item("<line x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\" class=\"ideal\"/>", "ideal");
  const std::string axis = concat("<p class=\"unit\">", escaped(plot.y_label), "</p>\n");
  return wrapped(id, plot.title, plot.description, kHeight, drawing,
                 concat(axis, "<ul class=\"legend\">\n", legend, "</ul>\n"));
}

std::string figure(const BarPlot& plot, const std::string& id) {
  double most = 0;
  for (const BarPlot::Bar& bar : plot.bars) most = std::max(most, bar.max);
  const auto length = [&](double value) { return most > 0 ? value / most * kBarsRight : 0; };
  std::string drawing;
  double y = 0;
  for (const BarPlot::Bar& bar : plot.bars) {
    constexpr double kWhisker = 3, kBeside = 8;
    const double top = y + kLetters + 2, middle = top + kBar / 2;
    drawing +=
        text(0, y + kLetters - 3, "start", bar.name) + box(0, top, length(bar.value), kBar, colour(bar.look));
    drawing += line(length(bar.min), middle, length(bar.max), middle, "whisker");
    for (const double end : {bar.min, bar.max}) {
      drawing += line(length(end), middle - kWhisker, length(end), middle + kWhisker, "whisker");
    }
    drawing += text(length(bar.max) + kBeside, middle + 4, "start", bar.text, "value");
    y += kRow;
  }
  return wrapped(id, plot.title, plot.description, bars_height(plot.bars.size()), drawing, "");
}

std::string figure(const PartsPlot& plot, const std::string& id) {
  std::string drawing, legend;
  double y = 0;
  for (const PartsPlot::Bar& bar : plot.bars) {
    const double sum = std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0), top = y + kLetters + 2;
    drawing += text(0, y + kLetters - 3, "start", bar.name) +
               text(kWidth, y + kLetters - 3, "end", bar.text, "value");
    double x = 0;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      const double width = sum > 0 ? bar.parts[i] / sum * kWidth : 0;
      drawing += box(x, top, width, kBar, concat("part", i));
      x += width;
    }
    y += kRow;
  }
  for (std::size_t i = 0; i < plot.part_names.size(); ++i) {
    legend += legend_item(box(2, 0, 22, 10, concat("part", i)), plot.part_names[i]);
  }
  return wrapped(id, plot.title, plot.description, bars_height(plot.bars.size()), drawing,
                 concat("<ul class=\"legend\">\n", legend, "</ul>\n"));
}

}  // namespace stagegpt::compare
