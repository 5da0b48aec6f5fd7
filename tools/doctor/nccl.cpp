#include "tools/doctor/nccl.h"

#include <dlfcn.h>

#include "common/base/error.h"

namespace stagegpt {

std::string nccl_version_text(int number) {
  const int major = number < 10000 ? 1000 : 10000;
  return concat(number / major, '.', number % major / 100, '.', number % 100);
}

std::optional<int> ask_nccl() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  int version = 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  const bool known = get_version != nullptr && get_version(&version) == 0;
  dlclose(library);
  return known ? std::optional(version) : std::nullopt;
}

Finding judge_nccl(std::optional<int> version, std::size_t gpus) {
  if (version) return {"NCCL", Finding::Mark::ok, nccl_version_text(*version)};
  if (gpus < 2) return {"NCCL", Finding::Mark::ok, "none; used with several GPUs only"};
  return {"NCCL", Finding::Mark::note, "none: libnccl.so.2 cannot be loaded",
          "stage 3 is fastest with it: install libnccl2 and libnccl-dev for this CUDA, and configure again"};
}

}  // namespace stagegpt
