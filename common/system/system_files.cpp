#include "common/system/system_files.h"

#include <fstream>
#include <iterator>
#include <sstream>

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

}  // namespace stagegpt
