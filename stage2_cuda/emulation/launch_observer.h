// Watches the launches of the emulator: the profile of --emulator-report does (profile/). Without an observer
// a check of one pointer remains, at events that take far longer.
#pragma once

#include <cstddef>

#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

struct Launch;
class Block;

class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void begin_launch(const Launch& launch) = 0;
  virtual void end_launch() = 0;
  virtual void begin_block(const Block& block) = 0;
  virtual void end_block() = 0;
  // All threads of the block have arrived at a barrier.
  virtual void at_barrier(const char* call, Where where) = 0;
  // All lanes of the mask of `self` have arrived at its warp call.
  virtual void at_warp_call(const Thread& self) = 0;
  // An asynchronous copy to shared memory was called in the instruction before `caller`.
  virtual void copies_to_shared(const void* to, std::size_t bytes, const void* caller) = 0;
  // The copy engine reads device memory for the running thread, called in the instruction before `caller`.
  virtual void reads_for_copy(const void* from, std::size_t bytes, const void* caller) = 0;
  // So many lanes have called something that is neither a barrier nor a warp call.
  virtual void count_call(const char* call, Where where, unsigned lanes) = 0;
  // Device memory that the runtime or a library reads and writes, without a kernel.
  enum class Mover { runtime, library };
  virtual void moves(Mover mover, std::size_t bytes_read, std::size_t bytes_written) = 0;
};

// Null without an observer.
extern constinit LaunchObserver* launch_observer;

}  // namespace stagegpt::gpu::emulation
