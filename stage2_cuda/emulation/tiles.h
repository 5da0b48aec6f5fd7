// Tiles in shared memory, for the copy engine and for products (compute capability 9.0): who may use one now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage2_cuda/emulation/barriers.h"
#include "stage2_cuda/emulation/shared_memory.h"

namespace stagegpt::gpu::emulation {

// The 128-byte swizzle of tiles of 64 rows of 64 bf16.
constexpr std::size_t kTileRows = 64, kTileColumns = 64, kRowBytes = 128,
                      kSwizzledBytes = kTileRows * kRowBytes;

// The byte of a tile at which an element is.
constexpr std::size_t swizzled(std::size_t row, std::size_t column) {
  return kRowBytes * row + 16 * (column / 8 ^ row % 8) + 2 * (column % 8);
}

// A tile, or an array of floats, is named by its first byte. All functions are called by the running thread
// and throw KernelError.
class Tiles {
 public:
  // Tiles begin at multiples of this.
  static constexpr std::size_t kAlignment = 128;

  void begin_block();
  // The dynamic shared memory of the block. Throws if it has fewer than `bytes`.
  void* memory(const SharedDeclaration& declaration, std::size_t bytes);

  // This thread reads or writes some bytes of a tile.
  void read(const void* tile, const void* from, std::size_t bytes);
  void write(const void* tile, const void* to, std::size_t bytes);
  void fence();

  // A copy to a tile begins, lands.
  void begin_copy(const void* tile, std::uint64_t& barrier, std::size_t bytes, std::function<void()> land,
                  Where where);
  // A product that reads a tile is started by a thread; has been computed, of all threads of a warp.
  void begin_product(const void* tile, Where where);
  void end_product(const void* tile, unsigned warp);

 private:
  struct Tile {
    bool used = false, copied = false, written = false;
    CopyPhase copy;
    Where copied_at, product_at;
    unsigned products = 0;  // started and not computed, by thread
    unsigned unfenced = 0;  // threads that have stored, and not called fence()
    VectorClock stored;     // what happened before these fences
    std::uint32_t stored_epoch = 0;
    struct {
      std::uint32_t epoch = 0, time = 0;
    } read[kMaxBlockThreads / kWarpSize];  // by a product of each warp that has been computed
  };

  Tile& of(const void* tile);
  std::ptrdiff_t offset(const void* byte) const;
  void check_copy(const Tile& tile, const void* begin, const char* does) const;
  // That all products that read the tile have been computed, and are ordered before the running thread.
  template <class... Parts>
  void check_products(const Tile& tile, const Parts&... does) const;

  SharedSpan span_;
  std::vector<Tile> tiles_;
  std::vector<std::size_t> used_;              // indices in tiles_
  std::vector<std::vector<Tile*>> of_thread_;  // tiles that a thread has stored to, and not fenced
};

}  // namespace stagegpt::gpu::emulation
