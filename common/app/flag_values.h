// Strict reading of flags' values, from the text on a command line or in a configuration. Each function
// throws UserError that names the flag, what was expected and what was given.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// ", did you mean X?" for the flag that other programs call by the given name, or the name nearest to it
// where one is near; else nothing.
std::string suggestion(std::string_view given, const std::vector<std::string>& names);

// Which numbers a flag takes, and how a message describes them.
struct RealRule {
  bool (*accepts)(double);
  const char* expected;
};
inline constexpr RealRule kPositive{[](double x) { return x > 0; }, "a number above 0"};
inline constexpr RealRule kNotNegative{[](double x) { return x >= 0; }, "a number of at least 0"};
inline constexpr RealRule kUpToOne{[](double x) { return x > 0 && x <= 1; }, "a number above 0 and up to 1"};
inline constexpr RealRule kBelowOne{[](double x) { return x >= 0 && x < 1; }, "a number from 0 to below 1"};

// A whole number may be written with a power of ten: 1e4, 1.5e3.
std::int64_t parse_integer(const std::string& flag, const std::string& text, std::int64_t min,
                           std::int64_t max);
double parse_real(const std::string& flag, const std::string& text, RealRule rule);
std::string not_empty(const std::string& flag, const std::string& text);
std::string one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& names);

// A configuration's value as the text that a flag would have, to be read by the functions above.
std::string config_text(const std::string& flag, const nlohmann::json& value, bool right_type,
                        std::string_view expected);

// "a, b, c".
std::string joined(const std::vector<std::string>& names);

}  // namespace stagegpt
