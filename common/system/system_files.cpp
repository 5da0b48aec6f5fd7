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
