// An access of a warp: what one instruction of its lanes reads or writes, and what that costs on a GPU.
//
// Global memory. The L1 cache moves sectors of 32 bytes, four of which are a line. A request is one
// instruction of a warp; Nsight Compute calls the number of distinct sectors that it touches "sectors per
// request". Ideal is the number of sectors that its distinct bytes would fill: ceil(bytes / 32). The
// efficiency is ideal / touched. Nothing is known here of which sectors are in a cache.
//
// Shared memory has 32 banks of 4 bytes; the 4-byte word w is in bank w mod 32. A bank gives one word per
// wavefront, to any number of lanes. 32 lanes of up to 4 bytes are one phase; lanes of 8 bytes are two phases
// of 16 lanes, lanes of 16 bytes four phases of 8 lanes. A phase takes as many wavefronts as the bank with
// the most distinct words has of them: n wavefronts are an n-way bank conflict.
#pragma once

#include <array>
#include <cstdint>

#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

struct WarpAccess {
  unsigned mask = 0;   // the lanes that take part
  unsigned bytes = 0;  // of each lane
  std::array<std::uintptr_t, kWarpSize> address = {};
};

struct Sectors {
  unsigned touched = 0, ideal = 0;
};
Sectors sectors_of(const WarpAccess& access);

struct Wavefronts {
  unsigned count = 0;  // of all phases
  unsigned ideal = 0;  // one for each phase that has a lane
  unsigned ways = 0;   // the most of a phase
};
// Addresses count from the beginning of the block's shared memory.
Wavefronts wavefronts_of(const WarpAccess& access);

}  // namespace stagegpt::gpu::emulation
