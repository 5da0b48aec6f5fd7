// What a block waits for. Barriers of compute capability 9.0: mbarriers, on which copies of the copy engine
// complete, and named barriers; then the asynchronous copies of 8.0. What the emulator checks of them is in
// stage2_cuda/hopper.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stage2_cuda/emulation/shared_memory.h"
#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

// The phase of a barrier in which a copy completes.
struct CopyPhase {
  unsigned barrier = 0;
  std::uint32_t phase = 0;
};

// All functions are called by the running thread and throw KernelError. `state`: the eight bytes of a barrier
// in shared memory, which tell it from others.
class Barriers {
 public:
  void begin_block();

  void init(std::uint64_t& state, int arrivals, Where where);
  // After it, the barriers that this thread has initialised may be used, by other threads once they have met
  // it.
  void fence_init();
  // An arrival, which lets the phase wait for so many bytes of copies; `call` for messages.
  void arrive(std::uint64_t& state, int bytes, const char* call, Where where);
  void wait(std::uint64_t& state, unsigned parity, Where where);
  // A copy of `bytes`, which land() makes: at once, or as late as a thread waits for the barrier.
  CopyPhase begin_copy(std::uint64_t& state, std::int64_t bytes, std::function<void()> land, Where where);
  void named(int id, int threads, Where where);

  // Whether the running thread has waited for the end of a copy's phase, or a thread that it met later has.
  bool has_seen(const CopyPhase& copy) const;
  bool has_ended(const CopyPhase& copy) const { return barriers_[copy.barrier].phase != copy.phase; }
  // These threads of the block have met: first + i for each bit i of the mask; all threads.
  void meet(unsigned first, unsigned mask);
  void meet_all();

  // Why a thread that waits here does not go on, and "" if it does not wait here.
  std::string why_waits(const Thread& thread) const;
  void check_copies_have_landed() const;

 private:
  struct Copy {
    std::int64_t bytes;
    std::function<void()> land;
  };
  struct Waiter {
    unsigned thread;
    unsigned parity;
  };
  struct MBarrier {
    std::ptrdiff_t offset = 0;  // in shared memory
    Where made;
    unsigned maker = 0;  // the thread
    bool fenced = false;
    std::uint32_t epoch = 0, time = 0;                 // of the fence
    int arrivals = 0, missing = 0;                     // of a phase; still to come in this one
    std::int64_t expected = 0, landed = 0, begun = 0;  // bytes of this phase
    std::uint32_t phase = 0;
    std::vector<Waiter> waiters = {};
    std::vector<Copy> copies = {};  // which have not landed
    std::vector<std::uint32_t> seen =
        {};  // by thread: the phases before this one, whose end it has waited for
    VectorClock arrived = {}, ended = {};  // what happened before the arrivals of this phase; of earlier ones
    std::array<std::uint32_t, kMaxBlockThreads / kWarpSize> known{};  // by warp: the phases it knows
  };
  struct Named {
    int threads = 0;
    Where where;
    std::vector<unsigned> arrived;
    VectorClock clock;  // what happened before
  };

  MBarrier& of(std::uint64_t state, const char* call, Where where);
  void land(MBarrier& barrier);
  void end_phase_if_complete(MBarrier& barrier);
  // The thread has waited for the end of the phase before.
  void leave(MBarrier& barrier, unsigned thread);

  std::vector<MBarrier> barriers_;
  std::array<Named, 16> named_;
};

// Asynchronous copies from device memory to shared memory. On a GPU the elements change at some time between
// the copy's call and the end of cp_async_wait_all. Here they change in cp_async_wait_all, and until then
// every access to them is an error.
constexpr std::size_t kCopyBytes = 16;

class AsyncCopies {
 public:
  // Begins a copy of `bytes` for the running thread. Throws KernelError.
  void begin(const SharedSpan& array, std::int64_t i, const std::array<std::byte, kCopyBytes>& bytes);
  // Ends all copies of the running thread.
  void wait();

  bool has_copies(const Thread& thread) const { return !of_thread_[thread.number].empty(); }
  void forget_all();

 private:
  struct Copy {
    SharedSpan array;
    std::int64_t i;
    std::array<std::byte, kCopyBytes> bytes;
  };
  std::array<std::vector<Copy>, kMaxBlockThreads> of_thread_;
};

}  // namespace stagegpt::gpu::emulation
