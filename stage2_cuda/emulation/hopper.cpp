#include "stage2_cuda/hopper.h"

namespace stagegpt::gpu {
namespace emulation {
namespace {

// 64 rows and columns of a tensor, from these on; zeros outside.
void copy_box(std::byte* to, const TensorMap& map, int column, int slot, int t, int b) {
  const auto [columns, slots, T, B] = map.extents;
  for (std::size_t row = 0; row < kTileRows; ++row) {
    const std::int64_t at = t + static_cast<std::int64_t>(row);
    const bool inside = at >= 0 && at < T && slot >= 0 && slot < slots && b >= 0 && b < B;
    for (std::size_t i = 0; i < kTileColumns; ++i) {
      const std::int64_t from = column + static_cast<std::int64_t>(i);
      Bf16 value = {};
      if (inside && from >= 0 && from < columns)
        value = map.data[((b * T + at) * slots + slot) * columns + from];
      std::memcpy(to + swizzled(row, i), &value, sizeof value);
    }
  }
}

}  // namespace

void fail_wait(Where where) {
  current_block->fail(*current_thread, "wgmma_wait in ", to_string(where),
                      " names registers of products in a group for which it does not wait");
}

}  // namespace emulation

void tma_load(SharedTile& to, const TensorMap& map, int column, int slot, int t, int b, Barrier& barrier,
              std::source_location where) {
  emulation::current_block->tiles().begin_copy(
      &to, barrier.state(), kTileBytes,
      [=, tile = to.bytes()] { emulation::copy_box(tile, map, column, slot, t, b); }, where);
}

}  // namespace stagegpt::gpu
