#include "common/app/flag_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "common/app/configuration.h"
#include "common/base/error.h"

namespace stagegpt {
namespace {

// Flags of other GPT-2 programs, and ours for the same setting.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"--lr", "--learning-rate"},         {"--epochs", "--steps"},
    {"--num-train-epochs", "--steps"},   {"--max-iters", "--steps"},
    {"--max-steps", "--steps"},          {"--iterations", "--steps"},
    {"--out-dir", "--run-dir"},          {"--output-dir", "--run-dir"},
    {"--dtype", "--precision"},          {"--num-return-sequences", "--num-samples"},
    {"--max-length", "--max-new-tokens"}};

// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({substituted, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

// The whole of `text` as a number, or nothing: no spaces, no trailing characters, no overflow.
std::optional<std::int64_t> parse_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "1e4" and "1.5e3" as whole numbers; nothing for another text, and where the number is not whole or too
// large.
std::optional<std::int64_t> parse_power_of_ten(const std::string& text) {
  const std::size_t e = text.find_first_of("eE");
  if (e == text.npos) return std::nullopt;
  std::string digits = text.substr(0, e), power = text.substr(e + 1);
  if (power.size() > 1 && power.front() == '+') power.replace(0, 1, "0");
  std::int64_t decimals = 0;
  if (const std::size_t point = digits.find('.'); point != digits.npos) {
    digits.erase(point, 1);
    decimals = static_cast<std::int64_t>(digits.size() - point);
  }
  std::optional<std::int64_t> value = parse_number(digits);
  const std::optional<std::int64_t> exponent = parse_number(power);
  constexpr std::int64_t kLargest = 18;
  if (!value || !exponent || *exponent < decimals || *exponent > kLargest + decimals) return std::nullopt;
  for (std::int64_t i = decimals; i < *exponent; ++i) {
    if (__builtin_mul_overflow(*value, 10, &*value)) return std::nullopt;
  }
  return value;
}

}  // namespace

std::string suggestion(std::string_view given, const std::vector<std::string>& names) {
  for (const auto& [elsewhere, ours] : kElsewhere) {
    if (given == elsewhere && std::ranges::find(names, ours) != names.end())
      return concat(", did you mean ", ours, "?");
  }
  // A longer text differs from every name by more than the limit below, and its distances take long.
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, name.size());
  if (given.size() > 2 * longest + 2) return "";
  const auto nearest = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return edit_distance(given, name); });
  if (nearest == names.end() || edit_distance(given, *nearest) > std::max<std::size_t>(2, given.size() / 3))
    return "";
  return concat(", did you mean ", *nearest, "?");
}

std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t min,
                           std::int64_t max) {
  std::optional<std::int64_t> value = parse_number(text);
  if (!value) value = parse_power_of_ten(text);
  if (!value || *value < min || *value > max) {
    user_error(flag, ": expected a whole number from ", min, " to ", max, ", not '", text, "'");
  }
  return *value;
}

double parse_real(const std::string& flag, const std::string& text, RealRule rule) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = end == text.data() + text.size() && error != std::errc::invalid_argument;
  const bool fits_f64 = error == std::errc();  // else the value is left as it was
  if (!is_number || (fits_f64 && !rule.accepts(value))) {
    user_error(flag, ": expected ", rule.expected, ", not '", text, "'");
  }
  // Kernels compute in f32: the number must neither overflow nor underflow there.
  const double size = std::abs(value), largest = std::numeric_limits<float>::max(),
               smallest = std::numeric_limits<float>::min();
  if (!fits_f64 || size > largest || (size > 0 && size < smallest)) {
    user_error(flag, ": expected ", rule.expected, " that f32 can hold (", smallest, " to ", largest,
               "), not '", text, "'");
  }
  return value;
}

std::string not_empty(const std::string& flag, const std::string& text) {
  if (text.empty()) user_error(flag, ": expected a value, not an empty text");
  return text;
}

std::string one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& names) {
  if (std::ranges::find(names, text) == names.end()) {
    refuse_removed_value(flag, text);
    user_error(flag, ": expected one of ", joined(names), ", not '", text, "'", suggestion(text, names));
  }
  return text;
}

std::string config_text(const std::string& flag, const nlohmann::json& value, bool right_type,
                        std::string_view expected) {
  constexpr std::size_t kShown = 60;
  if (!right_type) user_error(flag, ": expected ", expected, ", not ", value.dump().substr(0, kShown));
  // 1e4 is a whole number, as on the command line. JSON would print it as 10000.0.
  constexpr double kExact = 9007199254740992;  // 2^53
  const double number = value.is_number_float() ? value.get<double>() : 0.5;
  if (number == std::floor(number) && std::abs(number) <= kExact)
    return std::to_string(static_cast<std::int64_t>(number));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace stagegpt
