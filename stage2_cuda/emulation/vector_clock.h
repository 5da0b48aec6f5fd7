// What happened before what in a block, between warps: a vector clock (F. Mattern, 1989, "Virtual Time and
// Global States of Distributed Systems") with a component for each thread. Within a warp, and across a
// __syncthreads, shared_memory.h knows it without one.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace stagegpt::gpu::emulation {

constexpr unsigned kWarpSize = 32;

// A mask has bit i set for lane i of a warp.
// Calls body(lane) for each lane of a mask.
template <class Body>
void for_lanes(unsigned mask, const Body& body) {
  for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(std::countr_zero(mask)));
}

// For each warp, the accesses that happened before a point: times are those of the warp. A thread that
// arrives at a barrier adds what it has done and what its warp knows to the barrier's clock; a warp that
// leaves the barrier knows that. One lane that leaves it stands for its warp, so a race of another lane can
// be missed.
class VectorClock {
 public:
  void clear() { warps_.clear(); }
  bool empty() const { return warps_.empty(); }
  void join(const VectorClock& other);
  // What the running thread has done so far, and what its warp knows. It begins a new time of the warp.
  void add_running_thread();
  // Whether an access of a thread of the block, at this time of its warp, is among them.
  bool includes(unsigned thread, std::uint32_t time) const;
  // Whether it includes what a warp did as a whole, after which any of its lanes may have arrived.
  bool includes_warp(unsigned warp, std::uint32_t time) const;
  // Whether all of `other` is among them, but for what warp `self` has done.
  bool includes(const VectorClock& other, unsigned self) const;

 private:
  struct OfWarp {
    std::uint32_t all = 0;                        // accesses of all lanes before this time
    std::array<std::uint32_t, kWarpSize> lane{};  // those of one lane
  };
  OfWarp& of(unsigned warp);

  std::vector<OfWarp> warps_;
};

}  // namespace stagegpt::gpu::emulation
