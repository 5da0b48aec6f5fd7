#include "stage2_cuda/emulation/tiles.h"

#include <algorithm>
#include <utility>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kCell = 4;  // bytes whose accesses are recorded together

}  // namespace

void Tiles::begin_block() {
  for (const std::size_t i : std::exchange(used_, {})) tiles_[i] = {};
  for (std::vector<Tile*>& tiles : of_thread_) tiles.clear();
  span_ = {};
}

void* Tiles::memory(const SharedDeclaration& declaration, std::size_t bytes) {
  need_capability(90);
  span_ = current_block->shared().array(declaration);
  if (span_.count * kCell < bytes) {
    fail("uses ", bytes, " bytes of dynamic shared memory as ", declaration.name, ", but the launch gives ",
         span_.count * kCell);
  }
  tiles_.resize(kMostSharedBytes / kAlignment);
  of_thread_.resize(kMaxBlockThreads);
  return span_.data;
}

std::ptrdiff_t Tiles::offset(const void* byte) const {
  return static_cast<const char*>(byte) - static_cast<const char*>(span_.data);
}

Tiles::Tile& Tiles::of(const void* tile) {
  const std::size_t i = static_cast<std::size_t>(offset(tile)) / kAlignment;
  Tile& found = tiles_[i];
  if (!found.used) used_.push_back(i);
  found.used = true;
  return found;
}

void Tiles::check_copy(const Tile& tile, const void* begin, const char* does) const {
  if (!tile.copied || current_block->barriers().has_seen(tile.copy)) return;
  fail(does, " the tile at byte ", offset(begin), " of shared memory, to which a copy was started in ",
       to_string(tile.copied_at), ": this thread has not waited for phase ", tile.copy.phase,
       " of the copy's barrier");
}

template <class... Parts>
void Tiles::check_products(const Tile& tile, const Parts&... does) const {
  if (tile.products != 0)
    fail(does..., "which a product reads that was started in ", to_string(tile.product_at),
         " and is under way");
  const unsigned self = current_thread->warp, epoch = current_block->shared().epoch();
  for (unsigned warp = 0; warp * kWarpSize < current_block->threads(); ++warp) {
    const auto& read = tile.read[warp];
    if (warp == self || read.epoch != epoch ||
        current_block->warp(self).known.includes_warp(warp, read.time)) {
      continue;
    }
    fail(does..., "which a product of thread ", to_string(current_block->thread(warp * kWarpSize).index),
         " and its warp has read with no barrier in between");
  }
}

void Tiles::read(const void* begin, const void* from, std::size_t bytes) {
  check_copy(of(begin), begin, "reads");
  const std::ptrdiff_t first = offset(from) / static_cast<std::ptrdiff_t>(kCell);
  for (std::size_t i = 0; i < bytes / kCell; ++i)
    current_block->shared().read(span_, first + static_cast<std::ptrdiff_t>(i));
}

void Tiles::write(const void* begin, const void* to, std::size_t bytes) {
  Tile& tile = of(begin);
  check_copy(tile, begin, "writes");
  const std::ptrdiff_t first = offset(to) / static_cast<std::ptrdiff_t>(kCell);
  for (std::size_t i = 0; i < bytes / kCell; ++i)
    current_block->shared().write(span_, first + static_cast<std::ptrdiff_t>(i));
  tile.written = true;
  std::vector<Tile*>& stored = of_thread_[current_thread->number];
  // Until it is fenced, no product may read it.
  if (std::ranges::find(stored, &tile) != stored.end()) return;
  check_products(tile, "writes the tile at byte ", offset(begin), " of shared memory, ");
  stored.push_back(&tile);
  ++tile.unfenced;
}

void Tiles::fence() {
  if (of_thread_.empty()) return;
  const std::uint32_t epoch = current_block->shared().epoch();
  for (Tile* tile : std::exchange(of_thread_[current_thread->number], {})) {
    --tile->unfenced;
    if (std::exchange(tile->stored_epoch, epoch) != epoch) tile->stored.clear();
    tile->stored.add_running_thread();
  }
}

void Tiles::begin_copy(const void* begin, std::uint64_t& barrier, std::size_t bytes,
                       std::function<void()> land, Where where) {
  Tile& tile = of(begin);
  const auto refuse = [&](const auto&... why) {
    fail("starts a copy in ", to_string(where), " to the tile at byte ", offset(begin), " of shared memory, ",
         why...);
  };
  check_products(tile, "starts a copy in ", to_string(where), " to the tile at byte ", offset(begin),
                 " of shared memory, ");
  if (tile.unfenced != 0) {
    refuse("to which ", tile.unfenced, " threads have stored without fence_proxy_async() after it");
  }
  if (tile.copied && !current_block->barriers().has_ended(tile.copy)) {
    refuse("to which another copy is under way, started in ", to_string(tile.copied_at));
  }
  const std::ptrdiff_t first = offset(begin) / static_cast<std::ptrdiff_t>(kCell);
  current_block->shared().check_may_copy(span_, first, bytes / kCell);
  tile.copied = true;
  tile.copied_at = where;
  tile.stored.clear();
  tile.copy = current_block->barriers().begin_copy(
      barrier, static_cast<std::int64_t>(bytes),
      [this, first, bytes, copy = std::move(land)] {
        copy();
        current_block->shared().written_by_copy(span_, first, bytes / kCell);
      },
      where);
}

void Tiles::begin_product(const void* begin, Where where) {
  Tile& tile = of(begin);
  check_copy(tile, begin, "starts a product that reads");
  const auto refuse = [&](const auto&... why) {
    fail("starts a product in ", to_string(where), " that reads the tile at byte ", offset(begin),
         " of shared memory, ", why...);
  };
  if (!tile.copied && !tile.written) refuse("which is uninitialised");
  if (tile.unfenced != 0) {
    refuse("to which ", tile.unfenced, " threads have stored without fence_proxy_async() after it");
  }
  const unsigned self = current_thread->warp;
  if (!tile.stored.empty() && tile.stored_epoch == current_block->shared().epoch() &&
      !current_block->warp(self).known.includes(tile.stored, self)) {
    refuse("to which another warp has stored with no barrier in between");
  }
  tile.product_at = where;
  ++tile.products;
}

void Tiles::end_product(const void* begin, unsigned warp) {
  Tile& tile = of(begin);
  tile.products -= kWarpSize;
  tile.read[warp] = {current_block->shared().epoch(), current_block->warp(warp).time};
}

}  // namespace stagegpt::gpu::emulation
