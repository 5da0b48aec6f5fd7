// A block of CUDA threads, run by one OS thread: it takes turns among those that can go on, and stops with an
// error where none can.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <string>

#include "common/base/error.h"
#include "stage2_cuda/emulation/fibers.h"
#include "stage2_cuda/emulation/kernel_error.h"
#include "stage2_cuda/emulation/memory_faults.h"
#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/emulation/shared_memory.h"
#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

// Ends a thread that waits in a block that has failed.
struct Abandoned {};

struct Launch {
  const char* kernel = nullptr;
  Index grid, block;  // extents
  std::size_t shared_bytes = 0;
  void (*run_thread)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  ThreadOrder order = {};
  std::uint64_t number = 0;  // of the launch
};

class Block {
 public:
  // The block of this OS thread.
  static Block& of_this_thread();
  Block();

  // Runs all threads of a block. Throws KernelError.
  void run(const Launch& launch, Index block);

  const Launch& launch() const { return *launch_; }
  Index index() const { return index_; }
  SharedMemory& shared() { return shared_; }
  Thread& thread(unsigned number) { return threads_[number]; }
  Warp& warp(unsigned number) { return warps_[number]; }
  const Fibers& fibers() const { return fibers_; }

  // What threads call. A barrier returns whether any thread's predicate held.
  bool barrier(const char* call, bool predicate, Where where);
  // Each lane of the mask gives a value, and gets that of its source.
  std::uint64_t exchange(const char* call, unsigned mask, std::uint64_t value, unsigned source, Where where);
  // Each gets the set of lanes whose value is not 0.
  unsigned ballot(unsigned mask, bool value, Where where);
  void sync_warp(unsigned mask, Where where);

  // Throws KernelError, which names kernel, block and thread, and then says the parts.
  template <class... Parts>
  [[noreturn]] void fail(const Thread& thread, const Parts&... parts) const {
    throw KernelError(concat(described(thread), parts...));
  }

 private:
  void set_up(const Launch& launch, Index block);
  // Of a fiber: runs threads until it has nothing to do.
  void work();
  bool run_thread(Thread& thread);
  void wait(Thread& self);
  void abandon_waiting();
  void all_are_ready();
  // One that can go on, which it does now; null when there is none.
  Thread* take_ready();
  unsigned pick(unsigned set);
  [[noreturn, gnu::cold]] void report_stuck() const;
  void check_lanes(const Thread& waiting) const;
  void join(Thread& self, const char* call, unsigned mask, Where where);
  bool all_there(const Thread& self) const;
  void release(const Thread& self);
  std::string described(const Thread& thread) const;
  std::string described_launch() const;

  const Launch* launch_ = nullptr;
  Index index_, shape_;  // shape_: for which threads_ is numbered
  unsigned size_ = 0, exited_ = 0;
  std::array<Thread, kMaxBlockThreads> threads_;
  std::array<Warp, kMaxBlockThreads / kWarpSize> warps_;
  // Threads that can go on, as sets of warps and of their lanes.
  unsigned ready_warps_ = 0;
  std::array<unsigned, kMaxBlockThreads / kWarpSize> ready_ = {};
  std::array<unsigned, kMaxBlockThreads / kWarpSize> lanes_ = {};  // that exist
  // The barrier.
  unsigned arrived_ = 0;
  const Thread* first_arrived_ = nullptr;
  bool any_ = false, result_ = false;

  std::minstd_rand random_;
  std::exception_ptr error_;
  bool abandoning_ = false;
  Thread* handed_over_ = nullptr;  // to the fiber that is switched to: a thread to start
  SharedMemory shared_;
  SignalStack signal_stack_;
  Fibers fibers_;
};

// The block that this OS thread runs; null outside of kernels.
extern thread_local constinit Block* current_block;

inline unsigned Block::pick(unsigned set) {
  switch (launch_->order.order) {
    case Order::forward:
      return static_cast<unsigned>(std::countr_zero(set));
    case Order::reverse:
      return kWarpSize - 1 - static_cast<unsigned>(std::countl_zero(set));
    case Order::random:
      break;
  }
  // The first from a place on that is drawn.
  const auto place = static_cast<unsigned>(random_() % kWarpSize);
  const int from_place = std::countr_zero(std::rotr(set, static_cast<int>(place)));
  return (static_cast<unsigned>(from_place) + place) % kWarpSize;
}

inline Thread* Block::take_ready() {
  if (ready_warps_ == 0) return nullptr;
  const unsigned warp = pick(ready_warps_);
  const unsigned lane = pick(ready_[warp]);
  ready_[warp] &= ~(1U << lane);
  if (ready_[warp] == 0) ready_warps_ &= ~(1U << warp);
  Thread& thread = threads_[warp * kWarpSize + lane];
  thread.state = ThreadState::running;
  return &thread;
}

inline void Block::wait(Thread& self) {
  Thread* next = take_ready();
  if (next == nullptr) report_stuck();
  Fiber& fiber =
      next->fiber != nullptr ? *next->fiber : fibers_.take_idle();  // may find no memory for a stack
  self.fiber = &fibers_.current();
  if (next->fiber == nullptr) handed_over_ = next;
  fibers_.switch_to(fiber);
  self.fiber = nullptr;
  current_thread = &self;
  if (abandoning_) throw Abandoned();
}

// "(x,y,z)".
std::string to_string(Index index);
// "file.cuh:12".
std::string to_string(const Where& where);
bool same_line(const Where& a, const Where& b);
inline bool same_place(const Where& a, const Where& b) {
  return std::memcmp(&a, &b, sizeof(Where)) == 0 || same_line(a, b);
}

}  // namespace stagegpt::gpu::emulation
