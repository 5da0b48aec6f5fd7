#include "tests/support/difference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/base/error.h"

namespace stagegpt::test {
namespace {

using Indices = std::vector<std::size_t>;

double root_mean_square(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

double largest_difference(const Values& got, const Values& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) largest = std::max(largest, std::abs(got[i] - expected[i]));
  return largest;
}

// What fresh memory holds in the tests, where MALLOC_PERTURB_ is 128: bytes 0x7f, in f32 or in f64.
bool is_fresh_memory(double value) {
  return value == std::bit_cast<double>(0x7f7f7f7f7f7f7f7f) || value == std::bit_cast<float>(0x7f7f7f7f);
}

// Both arrays, and what counts as equal.
struct Compared {
  const Values& got;
  const Values& expected;
  double tolerance;

  static bool close(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }
  bool wrong(std::size_t i) const { return !close(got[i], expected[i], tolerance); }
};

Indices wrong_elements(const Compared& values) {
  Indices wrong;
  for (std::size_t i = 0; i < values.got.size(); ++i) {
    if (values.wrong(i)) wrong.push_back(i);
  }
  return wrong;
}

// The coordinate of element `i` in dimension `axis`.
std::int64_t coordinate(std::size_t i, const Shape& shape, int axis) {
  auto index = static_cast<std::int64_t>(i);
  for (int last = shape.rank() - 1; last > axis; --last) index /= shape[last];
  return index % shape[axis];
}

std::string coordinates(std::size_t i, const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    text += concat(axis ? ", " : "", coordinate(i, shape, axis));
  }
  return text + ")";
}

std::string axis_name(const Shape& shape, int axis, bool one) {
  if (axis == shape.rank() - 1) return one ? "column" : "columns";
  if (axis == shape.rank() - 2) return one ? "row" : "rows";
  return concat(one ? "index" : "indices", " of dimension ", axis, one ? "," : ",");
}

// ---- Where the wrong elements are ----

// Whether each index of dimension `axis` has a wrong element.
std::vector<bool> indices_with(const Indices& wrong, const Shape& shape, int axis) {
  std::vector<bool> has_wrong(shape[axis]);
  for (const std::size_t i : wrong) has_wrong[coordinate(i, shape, axis)] = true;
  return has_wrong;
}

// Names some indices of dimension `axis`, if they are one of them, a range or every other one.
std::optional<std::string> range_name(const std::vector<bool>& has_wrong, const Shape& shape, int axis) {
  const auto extent = static_cast<std::int64_t>(has_wrong.size());
  const std::int64_t count = std::ranges::count(has_wrong, true);
  const auto first = std::ranges::find(has_wrong, true) - has_wrong.begin();
  const auto last = extent - 1 - (std::find(has_wrong.rbegin(), has_wrong.rend(), true) - has_wrong.rbegin());
  const std::string several = axis_name(shape, axis, false);
  if (count == extent) return std::nullopt;
  if (count == 1) return concat("only ", axis_name(shape, axis, true), ' ', first);
  if (last - first + 1 == count && last == extent - 1) return concat(several, " from ", first, " on");
  if (last - first + 1 == count) return concat(several, ' ', first, " to ", last);
  bool every_other = first < 2 && count == (extent + 1 - first) / 2;
  for (std::int64_t i = 0; i < extent; ++i) every_other &= !has_wrong[i] || i % 2 == first;
  if (every_other) return concat(first ? "odd " : "even ", several);
  return std::nullopt;
}

// The rows, columns and indices of other dimensions that have wrong elements, if at least half of the
// elements where they meet are wrong.
std::string places(const Indices& wrong, const Shape& shape) {
  std::string text;
  std::int64_t meet = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::vector<bool> has_wrong = indices_with(wrong, shape, axis);
    meet *= std::ranges::count(has_wrong, true);
    if (const auto part = range_name(has_wrong, shape, axis)) text += concat(text.empty() ? "" : "; ", *part);
  }
  return wrong.size() > 1 && 2 * static_cast<std::int64_t>(wrong.size()) >= meet ? text : "";
}

// ---- How they are related to the expected ones ----

std::optional<std::string> constant(const Compared& values, const Indices& wrong) {
  const auto all = [&](auto is) { return std::ranges::all_of(wrong, is); };
  if (all([&](std::size_t i) { return std::isnan(values.got[i]); })) {
    return "NaN: not written, or computed from what was not written";
  }
  if (all([&](std::size_t i) { return is_fresh_memory(values.got[i]); })) return "fresh memory: not written";
  if (all([&](std::size_t i) { return values.got[i] == 0; })) return "0";
  return std::nullopt;
}

// The number f that minimises Σ (got - f·expected)², if f·expected is got.
std::optional<std::string> factor(const Compared& values, const Indices& wrong) {
  double product = 0, squares = 0;
  for (const std::size_t i : wrong) {
    product += values.got[i] * values.expected[i];
    squares += values.expected[i] * values.expected[i];
  }
  const double f = product / squares;
  const double tolerance = values.tolerance * std::max(1.0, std::abs(f));
  const bool is_factor = squares > 0 && wrong.size() > 1 && std::ranges::all_of(wrong, [&](std::size_t i) {
                           return Compared::close(values.got[i], f * values.expected[i], tolerance);
                         });
  if (!is_factor || std::abs(f - 1) < 1e-3) return std::nullopt;
  return concat(std::abs(f - std::round(f)) < 1e-3 ? std::round(f) : f, " × what is expected");
}

std::optional<std::string> offset(const Compared& values, const Indices& wrong) {
  double sum = 0;
  for (const std::size_t i : wrong) sum += values.got[i] - values.expected[i];
  const double mean = sum / static_cast<double>(wrong.size());
  const bool is_offset = wrong.size() > 1 && std::ranges::all_of(wrong, [&](std::size_t i) {
                           return Compared::close(values.got[i], values.expected[i] + mean, values.tolerance);
                         });
  if (!is_offset) return std::nullopt;
  return concat("what is expected ", mean < 0 ? "- " : "+ ", std::abs(mean));
}

// Whether every element, apart from those without a source, has the value that is expected at source(i).
template <class Source>
bool has_values_of(const Compared& values, const Source& source) {
  std::size_t compared = 0;
  for (std::size_t i = 0; i < values.got.size(); ++i) {
    const std::optional<std::size_t> from = source(i);
    if (!from) continue;
    if (!Compared::close(values.got[i], values.expected[*from], values.tolerance)) return false;
    ++compared;
  }
  return compared > 1;
}

// Elements that stand elsewhere: matrices that are transposed, rows or columns that are late or early.
std::optional<std::string> moved(const Compared& values, const Shape& shape) {
  if (shape.rank() < 1 || shape.numel() == 0) return std::nullopt;
  const auto columns = static_cast<std::size_t>(shape[-1]);
  const std::size_t n = values.got.size(), all_rows = n / columns;
  const auto transposed = [&](std::size_t rows) {
    return [=](std::size_t i) -> std::optional<std::size_t> {
      const std::size_t matrix = i / (rows * columns) * rows * columns, at = i % (rows * columns);
      return matrix + at % rows * columns + at / rows;
    };
  };
  for (const std::size_t rows :
       {all_rows, shape.rank() > 1 ? static_cast<std::size_t>(shape[-2]) : all_rows}) {
    if (rows > 1 && columns > 1 && has_values_of(values, transposed(rows))) return "transposed";
  }
  const auto shifted = [&](std::size_t by, std::size_t line, bool late) {
    return [=](std::size_t i) -> std::optional<std::size_t> {
      if (late) return i % line < by ? std::nullopt : std::optional(i - by);
      return i % line + by >= line ? std::nullopt : std::optional(i + by);
    };
  };
  for (const bool late : {true, false}) {
    const char* when = late ? " late" : " early";
    if (has_values_of(values, shifted(columns, n, late))) return concat("one row", when);
    if (has_values_of(values, shifted(1, columns, late))) return concat("one column", when);
  }
  return std::nullopt;
}

std::string relation(const Compared& values, const Indices& wrong, const Shape& shape) {
  if (const auto text = constant(values, wrong)) return "there it is " + *text;
  if (const auto text = factor(values, wrong)) return "there it is " + *text;
  if (const auto text = offset(values, wrong)) return "there it is " + *text;
  if (const auto text = moved(values, shape)) return "the values are those expected, but " + *text;
  return "";
}

}  // namespace

std::string describe_difference(const Values& got, const Values& expected, const Shape& shape, double limit) {
  if (got.size() != expected.size()) return concat(got.size(), " elements, not ", expected.size());
  // Beside a large difference, rounding errors are no mistakes.
  const double size = root_mean_square(expected);
  const double tolerance = std::max(limit * size, 1e-6 * std::min(size, largest_difference(got, expected)));
  const Compared values{got, expected, tolerance};
  const Indices wrong = wrong_elements(values);
  if (wrong.empty()) return "no single element is wrong by more than the limit";
  const std::size_t first = wrong.front();
  std::string text =
      concat(wrong.size(), " of ", got.size(), " elements of shape ", shape, " are wrong; the first at ",
             coordinates(first, shape), ": ", got[first], ", expected ", expected[first]);
  if (const std::string part = places(wrong, shape); !part.empty()) text += concat("\n  where: ", part);
  if (const std::string how = relation(values, wrong, shape); !how.empty()) text += concat("\n  ", how);
  return text;
}

}  // namespace stagegpt::test
