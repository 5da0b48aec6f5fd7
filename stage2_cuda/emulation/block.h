// A block of CUDA threads, run by one OS thread: a scheduler that switches between the threads that are
// ready, and reports an error on deadlock.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "stage2_cuda/emulation/barriers.h"
#include "stage2_cuda/emulation/fibers.h"
#include "stage2_cuda/emulation/launch_observer.h"
#include "stage2_cuda/emulation/memory_faults.h"
#include "stage2_cuda/emulation/products.h"
#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/emulation/shared_memory.h"
#include "stage2_cuda/emulation/thread.h"
#include "stage2_cuda/emulation/tiles.h"

namespace stagegpt::gpu {

// An error in a kernel or in a launch, found by the emulator. The message names the kernel and, if the error
// is in a thread, its block and thread index.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace stagegpt::gpu

namespace stagegpt::gpu::emulation {

// Thrown in the waiting threads of a block that has failed, to unwind their stacks.
struct Abandoned {};

// A pointer among the arguments of a launch, which are counted from 1.
struct PointerArgument {
  std::size_t number = 0;
  const void* address = nullptr;  // as the kernel sees it
};

struct Launch {
  const char* kernel = nullptr;
  Index grid, block;  // extents
  std::size_t shared_bytes = 0;
  void (*run_thread)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  std::vector<PointerArgument> (*pointers)(const void* arguments) = nullptr;
  ThreadOrder order = {};
  std::uint64_t number = 0;  // index of the launch
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
  const SharedMemory& shared() const { return shared_; }
  AsyncCopies& copies() { return copies_; }
  Barriers& barriers() { return barriers_; }
  Tiles& tiles() { return tiles_; }
  Products& products() { return products_; }
  Thread& thread(unsigned number) { return threads_[number]; }
  Warp& warp(unsigned number) { return warps_[number]; }
  const Warp& warp(unsigned number) const { return warps_[number]; }
  unsigned threads() const { return size_; }
  // The lanes of a warp that exist, as a mask.
  unsigned lanes(unsigned warp) const { return lanes_[warp]; }
  const Fibers& fibers() const { return fibers_; }

  // Called by CUDA threads. A barrier returns whether the predicate of any thread is true.
  bool barrier(const char* call, bool predicate, Where where);
  // A shuffle: each lane of the mask contributes a value, and gets that of lane `source`.
  std::uint64_t exchange(const char* call, unsigned mask, std::uint64_t value, unsigned source, Where where);
  // Each lane gets the set of lanes whose value is true.
  unsigned ballot(unsigned mask, bool value, Where where);
  void sync_warp(unsigned mask, Where where);
  // A call of all 32 lanes. Each contributes a record, and compute() gets those of all lanes.
  using WarpCall = void (*)(void* const (&records)[kWarpSize]);
  void together(const char* call, void* record, WarpCall compute, Where where);

  // The running thread waits until another one resumes it.
  void suspend(const char* call, Where where);
  void resume(Thread& thread);
  // Whether a copy of the copy engine lands when it is started, or when a thread waits for it.
  bool copies_land_at_once();

  // Throws KernelError. The message names kernel, block and thread, followed by `parts`.
  template <class... Parts>
  [[noreturn]] void fail(const Thread& thread, const Parts&... parts) const {
    throw KernelError(concat(described(thread), parts...));
  }

 private:
  void set_up(const Launch& launch, Index block);
  // The body of a fiber: runs threads until no thread is ready.
  void work();
  bool run_thread(Thread& thread);
  void wait(Thread& self);
  void abandon_waiting();
  void all_are_ready();
  // Takes a ready thread and marks it as running; null if no thread is ready.
  Thread* take_ready();
  unsigned pick(unsigned set);
  [[noreturn, gnu::cold]] void report_deadlock() const;
  void check_lanes(const Thread& waiting) const;
  void join(Thread& self, const char* call, unsigned mask, Where where);
  bool all_arrived(const Thread& self) const;
  void release(const Thread& self);
  std::string described(const Thread& thread) const;
  std::string described_launch() const;

  const Launch* launch_ = nullptr;
  Index index_, shape_;  // shape_: the block shape for which threads_ is numbered
  unsigned size_ = 0, exited_ = 0;
  std::array<Thread, kMaxBlockThreads> threads_;
  std::array<Warp, kMaxBlockThreads / kWarpSize> warps_;
  // The ready threads, as a set of warps and a set of lanes per warp.
  unsigned ready_warps_ = 0;
  std::array<unsigned, kMaxBlockThreads / kWarpSize> ready_ = {};
  std::array<unsigned, kMaxBlockThreads / kWarpSize> lanes_ = {};  // existing lanes
  // State of the barrier.
  unsigned arrived_ = 0;
  const Thread* first_arrived_ = nullptr;
  bool any_ = false, result_ = false;

  std::minstd_rand random_;
  std::exception_ptr error_;
  bool abandoning_ = false;
  Thread* to_start_ = nullptr;  // thread to be started by the fiber that is switched to
  SharedMemory shared_;
  AsyncCopies copies_;
  Barriers barriers_;
  Tiles tiles_;
  Products products_;
  SignalStack signal_stack_;
  Fibers fibers_;
};

// The block that this OS thread runs; null outside kernels.
extern thread_local constinit Block* current_block;

// Throws KernelError about the running thread.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  current_block->fail(*current_thread, parts...);
}

// Throws KernelError about the running thread if the device's compute capability, times ten, is below
// `least`.
void need_capability(int least);

inline unsigned Block::pick(unsigned set) {
  switch (launch_->order.order) {
    case Order::forward:
      return static_cast<unsigned>(std::countr_zero(set));
    case Order::reverse:
      return kWarpSize - 1 - static_cast<unsigned>(std::countl_zero(set));
    case Order::random:
      break;
  }
  // The first element of the set from a random position on.
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
  if (next == nullptr) report_deadlock();
  Fiber& fiber = next->fiber != nullptr ? *next->fiber : fibers_.take_idle();  // throws if out of memory
  self.fiber = &fibers_.current();
  if (next->fiber == nullptr) to_start_ = next;
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
