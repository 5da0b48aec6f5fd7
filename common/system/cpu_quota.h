// How many cores the control group (container) of this process may use.
#pragma once

#include <optional>
#include <string_view>

namespace stagegpt {

// In cores; nothing where there is no limit.
std::optional<double> cpu_quota();
// The quota in a control group's cpu.max, "200000 100000": 2 cores. Nothing for "max 100000".
std::optional<double> parse_cpu_quota(std::string_view cpu_max);

}  // namespace stagegpt
