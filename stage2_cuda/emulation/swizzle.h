// The 128-byte swizzle of tiles of 64 rows of 64 bf16.
#pragma once

#include <cstddef>

namespace stagegpt::gpu::emulation {

constexpr std::size_t kTileRows = 64, kTileColumns = 64, kRowBytes = 128;

// The byte of a tile at which an element is.
constexpr std::size_t swizzled(std::size_t row, std::size_t column) {
  return kRowBytes * row + 16 * (column / 8 ^ row % 8) + 2 * (column % 8);
}

}  // namespace stagegpt::gpu::emulation
