// Lanes of a warp as the bits of a mask.
#pragma once

#include <bit>

namespace stagegpt::gpu::emulation {

constexpr unsigned kWarpSize = 32;

// Calls body(lane) for each lane of a mask.
template <class Body>
void for_lanes(unsigned mask, const Body& body) {
  for (; mask != 0; mask &= mask - 1) body(static_cast<unsigned>(std::countr_zero(mask)));
}

}  // namespace stagegpt::gpu::emulation
