#include "stage2_cuda/emulation/fibers.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdint>

#include "common/tensor/poison.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kStackPage = 4096;
constexpr std::size_t kSpread = 3 * 64, kMostSpread = kStackPage;

// An allocator of stacks that removes AddressSanitizer's poison before it frees one. Otherwise memory that is
// mapped there later would seem to be out of bounds.
class Stacks {
 public:
  boost::context::stack_context allocate() { return stacks_.allocate(); }
  void deallocate(boost::context::stack_context& stack) noexcept {
    unpoison(static_cast<char*>(stack.sp) - stack.size, stack.size);
    stacks_.deallocate(stack);
  }

 private:
  boost::context::protected_fixedsize_stack stacks_{kStackBytes + kMostSpread};
};

}  // namespace

Fibers::~Fibers() {
  quitting_ = true;
  for (Fiber* fiber : idle_) switch_to(*fiber);
}

Fiber& Fibers::take_idle() {
  if (idle_.empty()) return make();
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

Fiber& Fibers::make() {
  idle_.reserve(all_.size() + 1);  // so that mark_idle() cannot throw
  all_.push_back(std::make_unique<Fiber>());
  Fiber& self = *all_.back();
  Stacks stacks;
  const boost::context::stack_context stack = stacks.allocate();
  // Different offsets within a page avoid cache conflicts between stacks.
  const std::size_t spread = all_.size() * kSpread % kMostSpread;
  char* top = static_cast<char*>(stack.sp) - spread;
  self.stack = {top - kStackBytes, kStackBytes};
  self.context = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(top, kStackBytes, stack), stacks,
      [this, &self](boost::context::fiber from) { return body(self, std::move(from)); });
  return self;
}

boost::context::fiber Fibers::body(Fiber& self, boost::context::fiber from) {
  arrived(self, std::move(from));
  while (!quitting_) work_();
  left_ = &self;
  begin_switch(nullptr, origin_.stack);
  return std::move(origin_.context);
}

bool Fibers::is_stack_guard(const void* address) const {
  for (const auto& fiber : all_) {
    const auto distance =
        reinterpret_cast<std::uintptr_t>(fiber->stack.bottom) - reinterpret_cast<std::uintptr_t>(address);
    if (distance > 0 && distance <= kMostSpread + kStackPage) return true;
  }
  return false;
}

}  // namespace stagegpt::gpu::emulation
