#include "common/system/free_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "common/system/system_files.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

// The number that a text begins with, after white space.
std::optional<double> leading_number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == text.npos) return std::nullopt;
  double value = 0;
  const auto end = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return end.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// The number after a word that begins a line.
std::optional<double> number_behind(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return leading_number(text.substr(at + word.size()));
  }
  return std::nullopt;
}

// The files of a control group, which differ between versions.
struct CgroupFiles {
  const char *limit, *usage, *active_cache, *inactive_cache;
};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file ",
                                "total_inactive_file "};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "active_file ", "inactive_file "};

std::optional<CgroupMemory> memory_of(const fs::path& group, const CgroupFiles& files) {
  constexpr double kNoLimit = 0x1p60;  // version 1: a number above any machine's memory
  const auto limit = leading_number(system_file(group / files.limit));  // version 2: "max"
  const auto usage = leading_number(system_file(group / files.usage));
  if (!limit || !usage || *limit >= kNoLimit) return std::nullopt;
  const std::string stat = system_file(group / "memory.stat");
  const double cache = number_behind(stat, files.active_cache).value_or(0) +
                       number_behind(stat, files.inactive_cache).value_or(0);
  return CgroupMemory{*limit, std::clamp(*limit - *usage + cache, 0.0, *limit)};
}

void take_least(std::optional<CgroupMemory>& least, const std::optional<CgroupMemory>& other) {
  if (other && (!least || other->left < least->left)) least = other;
}

// What a limit on the address space leaves.
std::optional<double> address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto pages = leading_number(system_file("/proc/self/statm"));
  if (!pages) return std::nullopt;
  const double used = *pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - used);
}

}  // namespace

std::optional<double> meminfo_bytes(std::string_view meminfo, std::string_view name) {
  constexpr double kKibibyte = 1024;
  const auto kibibytes = number_behind(meminfo, std::string(name) + ":");
  return kibibytes ? std::optional(*kibibytes * kKibibyte) : std::nullopt;
}

std::optional<CgroupMemory> cgroup_memory(const fs::path& root, std::string_view groups) {
  std::optional<CgroupMemory> least;
  std::istringstream lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) {  // number:controllers:/path
    const std::size_t controllers = line.find(':') + 1, path = line.find(":/");
    if (path == line.npos) continue;
    const bool version2 = path == controllers;
    if (!version2 && line.substr(controllers, path - controllers).find("memory") == line.npos) continue;
    const fs::path top = version2 ? root : root / "memory";
    // In a container its own group may be mounted at the top, while /proc/self/cgroup gives its path outside.
    for (fs::path group = top / line.substr(path + 2);; group = group.parent_path()) {
      take_least(least, memory_of(group, version2 ? kVersion2 : kVersion1));
      if (group == top || group == group.root_path()) break;
    }
  }
  return least;
}

std::optional<CgroupMemory> cgroup_memory() {
  return cgroup_memory("/sys/fs/cgroup", system_file("/proc/self/cgroup"));
}

FreeMemory free_memory() {
  const auto cgroup = cgroup_memory();
  return {.machine = meminfo_bytes(system_file("/proc/meminfo"), "MemAvailable"),
          .cgroup = cgroup ? std::optional(cgroup->left) : std::nullopt,
          .address_space = address_space_left()};
}

}  // namespace stagegpt
