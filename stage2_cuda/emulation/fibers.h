// The fibers of one OS thread: stacks between which the thread switches in user space, in nanoseconds. Idle
// fibers are kept and reused.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace stagegpt::gpu::emulation {

struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

// AddressSanitizer is told of switches, so that it checks against the current stack.
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

struct Fiber {
  boost::context::fiber context;  // valid while the fiber does not run
  StackBounds stack;
  void* sanitizer_state = nullptr;
};

class Fibers {
 public:
  // An idle fiber calls `work` when it is switched to. `work` must not throw.
  explicit Fibers(std::function<void()> work) : work_(std::move(work)) {}
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  Fiber& current() { return *current_; }
  // Returns an idle fiber, or a new one. Throws std::bad_alloc if there is no memory for its stack.
  Fiber& take_idle();
  // Marks the running fiber as idle; it must then switch to another.
  void mark_idle() { idle_.push_back(current_); }
  // Returns when another fiber switches back.
  void switch_to(Fiber& to);
  // The OS thread's own stack.
  Fiber& origin() { return origin_; }
  // Whether an address is in the guard page below a fiber's stack.
  bool is_stack_guard(const void* address) const;

 private:
  Fiber& make();
  boost::context::fiber body(Fiber& self, boost::context::fiber from);
  void arrived(Fiber& self, boost::context::fiber from);

  std::function<void()> work_;
  Fiber origin_;
  Fiber* current_ = &origin_;
  Fiber* left_ = nullptr;  // the fiber that the last switch left
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_;
  bool quitting_ = false;
};

// Inline: after a switch the processor mispredicts every return up to the kernel, so there should be few.
inline void Fibers::switch_to(Fiber& to) {
  Fiber& self = *current_;
  left_ = &self;
  current_ = &to;
  begin_switch(&self.sanitizer_state, to.stack);
  boost::context::fiber from = std::move(to.context).resume();
  arrived(self, std::move(from));
}

inline void Fibers::arrived(Fiber& self, boost::context::fiber from) {
  const StackBounds left_stack = end_switch(self.sanitizer_state);
  if (left_ == &origin_) origin_.stack = left_stack;
  left_->context = std::move(from);
  current_ = &self;
}

}  // namespace stagegpt::gpu::emulation
