// What the emulator knows of a CUDA thread and of its warp.
#pragma once

#include <cstdint>
#include <source_location>

namespace stagegpt::gpu::emulation {

struct Fiber;
using Where = std::source_location;

constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxBlockThreads = 1024;

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class ThreadState : std::uint8_t { ready, running, at_barrier, at_warp_call, exited };

struct Thread {
  Index index;               // threadIdx
  std::uint16_t number = 0;  // in the block: x first, then y, then z
  std::uint8_t warp = 0, lane = 0;
  ThreadState state = ThreadState::ready;
  Fiber* fiber = nullptr;  // that it waits on; null before it has started and while it runs
  // Of the call that it waits in:
  const char* call = nullptr;
  Where where;
  unsigned mask = 0;
  std::uint64_t result = 0;
};

struct Warp {
  unsigned waiting = 0;  // lanes in a warp call
  std::uint64_t value[kWarpSize] = {};
  std::uint8_t source[kWarpSize] = {};
  // Orders what lanes do with shared memory. Time passes with each __syncwarp.
  std::uint32_t time = 0;
  std::uint32_t full_time = 0;  // of the last one that all lanes took part in
  bool partial = false;         // whether there was one since that some lanes did not take part in
  // [a][b]: when a last heard of b, through one of those, by way of others too.
  std::uint32_t heard[kWarpSize][kWarpSize] = {};
};

// The thread that runs on this OS thread; null outside of kernels.
extern thread_local constinit Thread* current_thread;

}  // namespace stagegpt::gpu::emulation
