#include "common/system/system_files.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace stagegpt {

std::string system_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string value_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t separator = line.find_first_of(":=");
    if (separator == line.npos) continue;
    const std::size_t key_end = line.find_last_not_of(" \t", separator - 1);
    if (separator == 0 || line.substr(0, key_end + 1) != key) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", separator + 1);
    const std::size_t end = line.find_last_not_of(" \t\"\r");
    return begin == line.npos || end < begin ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

std::string cgroup_file(const std::string& name) {
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::istringstream groups(system_file("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    std::string content = system_file(root / line.substr(4) / name);
    if (!content.empty()) return content;
  }
  return system_file(root / name);
}

std::optional<double> cpu_quota() {
  if (const auto quota = parse_cpu_quota(cgroup_file("cpu.max"))) return quota;
  const std::string v1 = "/sys/fs/cgroup/cpu/cpu.cfs_";
  return parse_cpu_quota(system_file(v1 + "quota_us") + ' ' + system_file(v1 + "period_us"));
}

std::optional<double> parse_cpu_quota(std::string_view cpu_max) {
  std::istringstream words{std::string(cpu_max)};
  double quota = 0, period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace stagegpt
