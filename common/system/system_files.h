// Files in which the kernel describes the system.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace stagegpt {

// The whole content; empty where it cannot be read.
std::string system_file(const std::filesystem::path& path);
// The value in the first line "KEY: value" or "KEY=value" of a text, without quotes; empty if there is none.
std::string value_of(const std::string& text, std::string_view key);
// A file of the control group (version 2) that this process is in, or of the container's own.
std::string cgroup_file(const std::string& name);

// How many cores the control group (container) of this process may use; nothing where there is no limit.
std::optional<double> cpu_quota();
// The quota in a control group's cpu.max, "200000 100000": 2 cores. Nothing for "max 100000".
std::optional<double> parse_cpu_quota(std::string_view cpu_max);

}  // namespace stagegpt
