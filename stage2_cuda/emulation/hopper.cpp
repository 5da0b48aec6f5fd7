#include "stage2_cuda/hopper.h"

#include <algorithm>

namespace stagegpt::gpu {
namespace emulation {
namespace {

// A row of a tensor's box: `count` columns, the first of which is column `begin` of the box. None outside the
// tensor.
struct RowOfBox {
  const Bf16* from = nullptr;
  std::int64_t begin = 0, count = 0;
};

// Row `row` of the box of 64 rows and columns that begins at these.
RowOfBox row_of_box(const TensorMap& map, int column, int slot, int t, int b, std::size_t row) {
  const auto [columns, slots, T, B] = map.extents;
  const std::int64_t at = t + static_cast<std::int64_t>(row);
  if (at < 0 || at >= T || slot < 0 || slot >= slots || b < 0 || b >= B) return {};
  const std::int64_t first = std::max(column, 0);
  const auto end = std::min(columns, column + static_cast<std::int64_t>(kTileColumns));
  if (first >= end) return {};
  return {map.data + ((b * T + at) * slots + slot) * columns + first, first - column, end - first};
}

void copy_row(std::byte* to, std::size_t row, const RowOfBox& given) {
  for (std::size_t i = 0; i < kTileColumns; ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i) - given.begin;
    const Bf16 value = at >= 0 && at < given.count ? given.from[at] : Bf16();
    std::memcpy(to + swizzled(row, i), &value, sizeof value);
  }
}

}  // namespace

void Awaited::end() const {
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i]->in_flight != 0) {
      fail("wgmma_wait in ", to_string(where),
           " names registers of products in a group for which it does not wait");
    }
    all[i]->waited = true;
  }
}

}  // namespace emulation

TensorMap make_tensor_map(const Bf16* data, const std::array<std::int64_t, 4>& extents) {
  constexpr std::uintptr_t kUnit = 16;  // bytes
  const auto [columns, slots, T, B] = extents;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % kUnit == 0 &&
                       static_cast<std::size_t>(columns) * sizeof(Bf16) % kUnit == 0;
  const auto fits = [](std::int64_t extent) { return extent >= 1 && extent <= std::int64_t{1} << 32; };
  if (!aligned || !std::ranges::all_of(extents, fits)) {
    throw KernelError(concat("a tensor map of ", static_cast<const void*>(data),
                             " with (B,T,slots,columns) = (", B, ',', T, ',', slots, ',', columns,
                             "): address and rows need a multiple of 16 bytes, extents 1 to 2^32"));
  }
  return {data, extents};
}

void tma_load(SharedTile& to, const TensorMap& map, int column, int slot, int t, int b, Barrier& barrier,
              std::source_location where) {
  const auto for_rows = [=](const auto& use) {
    for (std::size_t row = 0; row < emulation::kTileRows; ++row)
      use(row, emulation::row_of_box(map, column, slot, t, b, row));
  };
  emulation::current_block->tiles().begin_copy(
      &to, barrier.state(), kTileBytes,
      [=, tile = to.bytes()] {
        for_rows([&](std::size_t row, const emulation::RowOfBox& given) {
          emulation::copy_row(tile, row, given);
        });
      },
      where);
  if (emulation::launch_observer == nullptr) return;
  emulation::launch_observer->count_call("tma_load", where, 1);
  for_rows([&, caller = __builtin_return_address(0)](std::size_t, const emulation::RowOfBox& given) {
    const std::size_t bytes = static_cast<std::size_t>(given.count) * sizeof(Bf16);
    if (bytes > 0) emulation::launch_observer->reads_for_copy(given.from, bytes, caller);
  });
}

void emulation::bulk_load(void* to, const float* from, std::size_t bytes, Barrier& barrier, Where where) {
  check_alignment("bulk_load", from, 0);
  current_block->tiles().begin_copy(
      to, barrier.state(), bytes, [=] { std::memcpy(to, from, bytes); }, where);
  if (launch_observer == nullptr) return;
  launch_observer->count_call("bulk_load", where, 1);
  launch_observer->reads_for_copy(from, bytes, __builtin_return_address(0));
}

}  // namespace stagegpt::gpu
