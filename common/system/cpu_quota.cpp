#include "common/system/cpu_quota.h"

#include <sstream>
#include <string>

#include "common/system/system_files.h"

namespace stagegpt {

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
