#include "common/app/flag_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "common/app/suggestion.h"
#include "common/error.h"

namespace stagegpt {
namespace {

// The whole of `text` as a number, or nothing: no spaces, no trailing characters, no overflow.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t min,
                           std::int64_t max) {
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < min || *value > max) {
    user_error(flag, ": expected a whole number from ", min, " to ", max, ", not '", text, "'");
  }
  return *value;
}

double parse_real(const std::string& flag, const std::string& text, RealRule rule) {
  const auto value = parse_number<double>(text);
  // Kernels compute in f32: a number must be one there, neither infinite nor lost to zero.
  const double size = value ? std::abs(*value) : 0;
  const bool fits =
      size <= std::numeric_limits<float>::max() && (size == 0 || size >= std::numeric_limits<float>::min());
  if (!value || !fits || !rule.accepts(*value)) {
    user_error(flag, ": expected ", rule.expected, ", not '", text, "'");
  }
  return *value;
}

std::string not_empty(const std::string& flag, const std::string& text) {
  if (text.empty()) user_error(flag, ": expected a value, not an empty one");
  return text;
}

std::string one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& names) {
  if (std::ranges::find(names, text) == names.end()) {
    user_error(flag, ": expected one of ", joined(names), ", not '", text, "'", suggestion(text, names));
  }
  return text;
}

std::string config_text(const std::string& flag, const nlohmann::json& value, bool right_type,
                        std::string_view expected) {
  constexpr std::size_t kShown = 60;
  if (!right_type) user_error(flag, ": expected ", expected, ", not ", value.dump().substr(0, kShown));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace stagegpt
