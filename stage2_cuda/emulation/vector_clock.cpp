#include "stage2_cuda/emulation/vector_clock.h"

#include <algorithm>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {
namespace {

void raise(std::uint32_t& time, std::uint32_t other) { time = std::max(time, other); }

}  // namespace

VectorClock::OfWarp& VectorClock::of(unsigned warp) {
  if (warp >= warps_.size()) warps_.resize(warp + 1);
  return warps_[warp];
}

void VectorClock::join(const VectorClock& other) {
  for (unsigned warp = 0; warp < other.warps_.size(); ++warp) {
    OfWarp& own = of(warp);
    const OfWarp& more = other.warps_[warp];
    raise(own.all, more.all);
    for (unsigned lane = 0; lane < kWarpSize; ++lane) raise(own.lane[lane], more.lane[lane]);
  }
}

void VectorClock::add_running_thread() {
  const Thread& self = *current_thread;
  Warp& warp = current_block->warp(self.warp);
  join(warp.known);
  OfWarp& own = of(self.warp);
  raise(own.all, warp.full_time);
  if (warp.partial) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) raise(own.lane[lane], warp.clock[self.lane][lane]);
  }
  own.lane[self.lane] = ++warp.time;
}

bool VectorClock::includes(unsigned thread, std::uint32_t time) const {
  const unsigned warp = thread / kWarpSize;
  if (warp >= warps_.size()) return false;
  return time < std::max(warps_[warp].all, warps_[warp].lane[thread % kWarpSize]);
}

bool VectorClock::includes_warp(unsigned warp, std::uint32_t time) const {
  if (warp >= warps_.size()) return false;
  return time < std::max(warps_[warp].all, std::ranges::max(warps_[warp].lane));
}

bool VectorClock::includes(const VectorClock& other, unsigned self) const {
  for (unsigned warp = 0; warp < other.warps_.size(); ++warp) {
    const OfWarp none, &own = warp < warps_.size() ? warps_[warp] : none, &more = other.warps_[warp];
    if (warp == self) continue;
    if (more.all > own.all) return false;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (more.lane[lane] > std::max(own.all, own.lane[lane])) return false;
    }
  }
  return true;
}

}  // namespace stagegpt::gpu::emulation
