#include "stage3_mpi_cuda/nccl_debug_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace stagegpt::gpu {

std::string nccl_debug_file() {
  struct stat status = {};
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return "/dev/stderr";
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/fd/2", error);
  if (error) return "/dev/null";
  std::string name;
  for (const char c : path)
    name += c == '%' ? std::string("%%") : std::string(1, c);  // NCCL replaces %h and %p
  return name + ".nccl.%h.%p";
}

}  // namespace stagegpt::gpu
