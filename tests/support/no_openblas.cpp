// A library for LD_PRELOAD: OpenBLAS is not installed.
#include <dlfcn.h>

#include <cstring>

extern "C" void* dlopen(const char* file, int flags) noexcept {
  static const auto open = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"));
  const bool is_openblas = file != nullptr && std::strstr(file, "openblas") != nullptr;
  return open(is_openblas ? "/nonexistent/libopenblas.so" : file, flags);
}
