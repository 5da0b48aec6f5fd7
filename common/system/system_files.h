// Files in which the kernel describes the system.
#pragma once

#include <filesystem>
#include <string>

namespace stagegpt {

// The whole content; empty where it cannot be read.
std::string system_file(const std::filesystem::path& path);
// A file of the control group (version 2) that this process is in, or of the container's own.
std::string cgroup_file(const std::string& name);

}  // namespace stagegpt
