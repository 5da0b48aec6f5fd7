#include "tools/compare/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "common/base/error.h"

namespace stagegpt::compare {
namespace {

std::string printed(const char* format, int decimals, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, decimals, value);
  return text;
}

}  // namespace

std::string three_digits(double value) {
  const double size = std::abs(value);
  return grouped(value, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

std::string scientific(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return "infinite";
  if (value == 0) return "0";
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  const std::string digits = printed("%.*f", 1, value / std::pow(10, exponent));
  if (digits.ends_with("10.0"))
    return scientific(value < 0 ? -std::pow(10, exponent + 1) : std::pow(10, exponent + 1));
  return concat(digits.ends_with(".0") ? digits.substr(0, digits.size() - 2) : digits, "e", exponent);
}

std::string exactly(double value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return std::string(text, result.ptr);
}

std::string counted(std::int64_t count, const char* thing) {
  return concat(count, " ", thing, count == 1 ? "" : "s");
}

std::string percent(double share) { return concat(printed("%.*f", 1, 100 * share), " %"); }

std::string mebibytes(std::int64_t bytes) {
  return concat(three_digits(static_cast<double>(bytes) / (1 << 20)), " MiB");
}

}  // namespace stagegpt::compare
