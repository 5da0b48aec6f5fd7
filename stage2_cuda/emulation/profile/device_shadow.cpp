#include "stage2_cuda/emulation/profile/device_shadow.h"

#include <algorithm>
#include <bit>

namespace stagegpt::gpu::emulation {

void DeviceShadow::begin_launch() {
  pages_.clear();
  released_.clear();
  last_ = nullptr;
  epoch_ = 0;
}

void DeviceShadow::begin_block(std::uint32_t number) {
  block_ = number;
  ++epoch_;
  fence_epoch_ = 0;
  acquired_.clear();
}

DeviceShadow::Page& DeviceShadow::page_at(std::uintptr_t number) {
  if (last_ != nullptr && last_number_ == number) return *last_;
  auto& page = pages_[number];
  if (page == nullptr) page = std::make_unique<Page>();
  last_number_ = number;
  last_ = page.get();
  return *last_;
}

// From cells of four bytes to cells of two.
void DeviceShadow::Page::split() {
  std::vector<Cell> halves;
  halves.reserve(kPageBytes / kNarrow);
  for (const Cell& cell : cells) halves.insert(halves.end(), kWide / kNarrow, cell);
  cells = std::move(halves);
  cell_bytes = kNarrow;
}

void DeviceShadow::mark(Page& page, std::uintptr_t begin, unsigned bytes, Kind kind) {
  for (std::uintptr_t byte = begin; byte < begin + bytes; ++byte) {
    const std::uint64_t bit = std::uint64_t{1} << byte % 64;
    std::uint64_t& written = page.written[byte / 64];
    if (kind != Kind::write && (written & bit) == 0) page.read[byte / 64] |= bit;
    if (kind != Kind::read) written |= bit;
  }
}

const Stamp* DeviceShadow::access(std::uintptr_t address, unsigned bytes, Kind kind,
                                  Instruction instruction) {
  const Thread& self = *current_thread;
  const Stamp now = {.block = block_,
                     .epoch = epoch_,
                     .time = current_block->warp(self.warp).time,
                     .thread = self.number,
                     .kind = kind,
                     .instruction = instruction};
  if (kind == Kind::atomic) synchronise(address);
  const Stamp* race = nullptr;
  while (bytes > 0) {
    Page& page = page_at(address / kPageBytes);
    const std::uintptr_t begin = address % kPageBytes;
    const auto here = static_cast<unsigned>(std::min<std::uintptr_t>(bytes, kPageBytes - begin));
    mark(page, begin, here, kind);
    if (page.cell_bytes == kWide && (begin % kWide != 0 || here % kWide != 0)) page.split();
    if (here >= kNarrow) {
      for (std::uintptr_t i = begin / page.cell_bytes; i * page.cell_bytes < begin + here; ++i) {
        if (const Stamp* found = record(page.cells[i], address, now)) race = found;
      }
    }
    address += here;
    bytes -= here;
  }
  return race;
}

const Stamp* DeviceShadow::record(Cell& cell, std::uintptr_t address, const Stamp& now) {
  const Stamp* race = nullptr;
  const auto check = [&](const Stamp& other) {
    if (other.block == Stamp::kNoBlock || ordered(other, address, now)) return;
    found_ = other;
    race = &found_;
  };
  check(cell.writer);
  if (now.kind == Kind::read) {
    if (cell.reader.block != Stamp::kNoBlock && cell.reader.block != now.block)
      cell.other_reader = cell.reader;
    cell.reader = now;
  } else {
    check(cell.reader);
    check(cell.other_reader);
    cell.writer = now;
  }
  return race;
}

bool DeviceShadow::ordered(const Stamp& other, std::uintptr_t address, const Stamp& now) const {
  if (other.kind == Kind::atomic && now.kind == Kind::atomic) return true;
  if (other.block == now.block) {
    return other.epoch < now.epoch || other.thread == now.thread || in_order(other.thread, other.time);
  }
  return std::ranges::any_of(acquired_, [&](std::uintptr_t atomic) {
    if (other.kind == Kind::atomic && atomic == address) return true;  // it read the other's result
    const auto& blocks = released_.at(atomic);
    const auto found = blocks.find(other.block);
    return found != blocks.end() && other.epoch <= found->second;
  });
}

// An atomic operation: what this block did before its fence is released, and what others released is
// acquired.
void DeviceShadow::synchronise(std::uintptr_t address) {
  auto& blocks = released_[address];
  if (fence_epoch_ != 0) blocks[block_] = fence_epoch_;
  if (std::ranges::find(acquired_, address) == acquired_.end()) acquired_.push_back(address);
}

Bytes DeviceShadow::distinct(std::uintptr_t begin, std::uintptr_t end) const {
  Bytes bytes;
  for (const auto& [number, page] : pages_) {
    const std::uintptr_t first = number * kPageBytes;
    for (std::uintptr_t word = 0; word < kWords; ++word) {
      const std::uintptr_t from = first + 64 * word, low = std::max(begin, from),
                           high = std::min(end, from + 64);
      if (low >= high) continue;
      const std::uint64_t bits = ~std::uint64_t{0} >> (64 - (high - low)) << (low - from);
      bytes.read += static_cast<Count>(std::popcount(page->read[word] & bits));
      bytes.written += static_cast<Count>(std::popcount(page->written[word] & bits));
    }
  }
  return bytes;
}

}  // namespace stagegpt::gpu::emulation
