#include "stage2_cuda/emulation/fibers.h"

#include <gtest/gtest.h>

#if defined(__SANITIZE_ADDRESS__)

namespace stagegpt::gpu::emulation {
namespace {

// AddressSanitizer marks addresses as poisoned. The marks must be removed with a fiber's stack, because the
// addresses may be used again.
TEST(Fibers, LeaveNoMarksWhereTheirStacksWere) {
  StackBounds stack;
  {
    Fibers fibers([&] {
      fibers.mark_idle();
      fibers.switch_to(fibers.origin());
    });
    Fiber& fiber = fibers.take_idle();
    stack = fiber.stack;
    fibers.switch_to(fiber);
    EXPECT_NE(__asan_region_is_poisoned(const_cast<void*>(stack.bottom), stack.bytes), nullptr);
  }
  EXPECT_EQ(__asan_region_is_poisoned(const_cast<void*>(stack.bottom), stack.bytes), nullptr);
}

}  // namespace
}  // namespace stagegpt::gpu::emulation

#endif
