// Numbers for readers. JSON, metrics and values of flags have none of these separators.
#pragma once

#include <concepts>
#include <string>

namespace stagegpt {

// "12,345"; with `decimals` decimal places.
std::string grouped(double value, int decimals = 0);
std::string grouped(std::integral auto value) { return grouped(static_cast<double>(value)); }

}  // namespace stagegpt
