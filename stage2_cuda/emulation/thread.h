// The state of a CUDA thread and of a warp.
#pragma once

#include <cstdint>
#include <source_location>

#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {

struct Fiber;
using Where = std::source_location;

constexpr unsigned kMaxBlockThreads = 1024;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// The place of number `number` in a grid or block of these extents: x first, then y, then z; and its number.
inline Index index_of(std::uint64_t number, const Index& extents) {
  const std::uint64_t row = number / extents.x;
  return {static_cast<unsigned>(number % extents.x), static_cast<unsigned>(row % extents.y),
          static_cast<unsigned>(row / extents.y)};
}
inline std::uint64_t number_of(const Index& index, const Index& extents) {
  return index.x + extents.x * (index.y + std::uint64_t{extents.y} * index.z);
}

// suspended: at a barrier of compute capability 9.0 (barriers.h).
enum class ThreadState : std::uint8_t { ready, running, at_barrier, at_warp_call, suspended, exited };

struct Thread {
  Index index;               // threadIdx
  std::uint16_t number = 0;  // in the block: x first, then y, then z
  std::uint8_t warp = 0, lane = 0;
  ThreadState state = ThreadState::ready;
  Fiber* fiber = nullptr;  // on which it waits; null before it has started and while it runs
  // The call in which it waits:
  const char* call = nullptr;
  Where where;
  unsigned mask = 0;
  std::uint64_t result = 0;
};

struct Warp {
  unsigned waiting = 0;  // lanes in a warp call
  std::uint64_t value[kWarpSize] = {};
  std::uint8_t source[kWarpSize] = {};
  void* record[kWarpSize] = {};
  // Order of the lanes' accesses to shared memory: each __syncwarp, and each arrival of a lane at a
  // barrier of compute capability 9.0, increments the time.
  std::uint32_t time = 0;
  std::uint32_t full_time = 0;  // time of the last __syncwarp of all lanes
  bool partial = false;         // whether a __syncwarp of only some lanes followed
  // Vector clocks: accesses of lane b before time clock[a][b] happened before those of lane a now.
  std::uint32_t clock[kWarpSize][kWarpSize] = {};
  VectorClock known;  // what happened before those of this warp now, by barriers of compute capability 9.0
};

// The CUDA thread that runs on this OS thread; null outside kernels.
extern thread_local constinit Thread* current_thread;

}  // namespace stagegpt::gpu::emulation
