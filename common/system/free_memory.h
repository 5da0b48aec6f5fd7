// How much of the host's memory this process may still take.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace stagegpt {

// In bytes; nothing where the kernel does not say.
struct FreeMemory {
  std::optional<double> machine;  // MemAvailable of /proc/meminfo: free, or page cache that can be given up
  std::optional<double> cgroup;   // what the control groups of this process leave, those around it too
  std::optional<double> address_space;  // what `ulimit -v` leaves; other processes do not share it
};
FreeMemory free_memory();

// The value of a name in /proc/meminfo, such as "MemTotal", in bytes.
std::optional<double> meminfo_bytes(std::string_view meminfo, std::string_view name);

struct CgroupMemory {
  double limit = 0;
  double left = 0;  // of the limit; page cache counts as left
};
// The memory of the control group that leaves least, among those that /proc/self/cgroup (`groups`) names and
// those around them, of version 1 or 2. Nothing where none has a limit.
std::optional<CgroupMemory> cgroup_memory(const std::filesystem::path& root, std::string_view groups);
std::optional<CgroupMemory> cgroup_memory();

}  // namespace stagegpt
