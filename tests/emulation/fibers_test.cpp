#include "stage2_cuda/emulation/fibers.h"

#include <gtest/gtest.h>

namespace stagegpt::gpu::emulation {
namespace {

TEST(Fibers, DoNoMoreWorkWhenTheyEnd) {
  int calls = 0;
  {
    Fibers fibers([&] {
      ++calls;
      fibers.mark_idle();
      fibers.switch_to(fibers.origin());
    });
    for (int i = 0; i < 3; ++i) fibers.switch_to(fibers.take_idle());
  }
  EXPECT_EQ(calls, 3);
}

#if defined(__SANITIZE_ADDRESS__)

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

#endif

}  // namespace
}  // namespace stagegpt::gpu::emulation
