// Notifies AddressSanitizer of switches between fibers, so that it checks against the current stack. Without
// AddressSanitizer these functions do nothing.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace stagegpt::gpu::emulation {

struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::size_t kStackBytes = std::size_t{512} << 10;
inline void begin_switch(void** saved, StackBounds to) {
  __sanitizer_start_switch_fiber(saved, to.bottom, to.bytes);
}
inline StackBounds end_switch(void* saved) {
  StackBounds from;
  __sanitizer_finish_switch_fiber(saved, &from.bottom, &from.bytes);
  return from;
}
#else
inline constexpr std::size_t kStackBytes = std::size_t{64} << 10;
inline void begin_switch(void**, StackBounds) {}
inline StackBounds end_switch(void*) { return {}; }
#endif

}  // namespace stagegpt::gpu::emulation
