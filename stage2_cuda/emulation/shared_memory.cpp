#include "stage2_cuda/emulation/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kArrayAlignment = 16, kMemoryAlignment = 1024;

[[noreturn, gnu::cold]] void race(const SharedSpan& array, std::int64_t i, const char* does,
                                  std::uint16_t other, const char* did) {
  fail(does, ' ', array.declaration->name, '[', i, "], which thread ",
       to_string(current_block->thread(other).index), ' ', did, " with no barrier in between");
}

}  // namespace

std::size_t shared_bytes_limit() {
  const int capability = compute_capability();
  return capability >= 90 ? kMostSharedBytes : capability >= 80 ? kSharedBytes : kLeastSharedBytes;
}

SharedMemory::SharedMemory()
    : bytes_(std::aligned_alloc(kMemoryAlignment, kMostSharedBytes)),
      // At most one cell per byte; the system allocates only the pages that are used.
      cells_(static_cast<Cell*>(std::calloc(kMostSharedBytes, sizeof(Cell)))) {
  if (bytes_ == nullptr || cells_ == nullptr) throw std::bad_alloc();
}

void SharedMemory::begin_block(std::size_t dynamic_bytes) {
  if (epoch_ > 1U << 31) {  // before the counter overflows and repeats epochs that cells hold
    std::memset(static_cast<void*>(cells_.get()), 0, kMostSharedBytes * sizeof(Cell));
    epoch_ = 0;
  }
  first_epoch_ = ++epoch_;
  dynamic_bytes_ = dynamic_bytes;
  dynamic_element_bytes_ = 0;
  used_bytes_ = (dynamic_bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  used_cells_ = array_count_ = 0;
}

SharedSpan SharedMemory::array(const SharedDeclaration& declaration) {
  for (std::size_t i = 0; i < array_count_; ++i) {
    if (arrays_[i].declaration == &declaration) return arrays_[i];
  }
  return make(declaration);
}

SharedSpan SharedMemory::make(const SharedDeclaration& declaration) {
  const bool dynamic = declaration.count == 0;
  const std::size_t bytes = dynamic ? dynamic_bytes_ : declaration.count * declaration.element_bytes;
  if (array_count_ == kMaxArrays) fail("declares more than ", kMaxArrays, " shared arrays");
  if (dynamic && dynamic_element_bytes_ != 0) {
    fail("declares dynamic shared memory twice, the second time as ", declaration.name);
  }
  const std::size_t begin = dynamic ? 0 : used_bytes_;
  const std::size_t limit = dynamic_bytes_ > 0 ? shared_bytes_limit() : kDefaultSharedBytes;
  if (begin + bytes > limit) {
    fail("shared arrays take ", begin + bytes, " bytes with ", declaration.name, ", more than the ", limit,
         " of a block");
  }
  char* data = static_cast<char*>(bytes_.get()) + begin;
  std::memset(data, 0xFF, bytes);
  const std::size_t count = bytes / declaration.element_bytes;
  const SharedSpan span = {&declaration, data, cells_.get() + used_cells_, count};
  used_cells_ += count;
  if (dynamic) {
    dynamic_element_bytes_ = declaration.element_bytes;
  } else {
    used_bytes_ = begin + (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  }
  return arrays_[array_count_++] = span;
}

// Refuses an element that may not be accessed, apart from races.
void SharedMemory::refuse(const SharedSpan& array, std::int64_t i, const char* does) const {
  std::string why = "to which an asynchronous copy is under way: its thread has not called cp_async_wait_all";
  if (!array.has(i)) {
    why = concat("beyond its ", array.count, " elements");
  } else if (array.cells[i].write_epoch < first_epoch_) {
    why = "which is uninitialised: no thread of the block has written it yet";
  }
  fail(does, ' ', array.declaration->name, '[', i, "], ", why);
}

void SharedMemory::read(const SharedSpan& array, std::int64_t i) {
  if (!array.has(i)) refuse(array, i, "reads");
  Cell& cell = array.cells[i];
  if (cell.write_epoch < first_epoch_ || cell.writer == kCopying) refuse(array, i, "reads");
  if (cell.write_epoch == epoch_ && !in_order(cell.writer, cell.write_time))
    race(array, i, "reads", cell.writer, "has written");
  record_reader(cell);
}

void SharedMemory::write(const SharedSpan& array, std::int64_t i) {
  if (!array.has(i)) refuse(array, i, "writes");
  Cell& cell = array.cells[i];
  check_ordered(array, i, "writes");
  record_writer(cell);
}

void SharedMemory::record_writer(Cell& cell) const {
  cell.write_epoch = epoch_;
  cell.writer = current_thread->number;
  cell.write_time = current_block->warp(current_thread->warp).time;
}

void SharedMemory::begin_copy(const SharedSpan& array, std::int64_t i) {
  write(array, i);
  array.cells[i].writer = kCopying;
}

void SharedMemory::end_copy(const SharedSpan& array, std::int64_t i) { record_writer(array.cells[i]); }

void SharedMemory::check_may_copy(const SharedSpan& array, std::int64_t first, std::size_t count) const {
  for (std::size_t i = 0; i < count; ++i)
    check_ordered(array, first + static_cast<std::int64_t>(i), "starts a copy to");
}

void SharedMemory::written_by_copy(const SharedSpan& array, std::int64_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Cell& cell = array.cells[first + static_cast<std::int64_t>(i)];
    cell = {.write_epoch = epoch_, .writer = kNoThread};
  }
}

// That the running thread may write: all recorded accesses came before.
void SharedMemory::check_ordered(const SharedSpan& array, std::int64_t i, const char* does) const {
  const Cell& cell = array.cells[i];
  if (cell.write_epoch >= first_epoch_ && cell.writer == kCopying) refuse(array, i, does);
  const auto check = [&](std::uint16_t other, std::uint32_t time, const char* did) {
    if (!in_order(other, time)) race(array, i, does, other, did);
  };
  if (cell.write_epoch == epoch_) check(cell.writer, cell.write_time, "has written");
  if (cell.read_epoch != epoch_) return;
  check(cell.reader, cell.reader_time, "has read");
  check(cell.earlier, cell.earlier_time, "has read");
  check(cell.other_warp, cell.other_time, "has read");
}

void SharedMemory::record_reader(Cell& cell) const {
  const Thread& self = *current_thread;
  const Warp& warp = current_block->warp(self.warp);
  const std::uint32_t time = warp.time;
  if (cell.read_epoch != epoch_) {
    cell.read_epoch = epoch_;
    cell.earlier = cell.other_warp = kNoThread;
  } else if (cell.reader / kWarpSize != self.warp) {
    const bool has_met = !warp.known.empty();  // for speed: without, no other warp is in order
    if (!has_met || !in_order(cell.reader, cell.reader_time)) {
      if (cell.other_warp == kNoThread || (has_met && in_order(cell.other_warp, cell.other_time))) {
        cell.other_warp = self.number;
        cell.other_time = time;
      }
      return;
    }
    cell.earlier = kNoThread;
    if (cell.other_warp != kNoThread && cell.other_warp / kWarpSize == self.warp) {
      cell.earlier = std::exchange(cell.other_warp, kNoThread);
      cell.earlier_time = cell.other_time;
    }
  } else if (cell.reader != self.number) {
    cell.earlier = cell.reader;
    cell.earlier_time = cell.reader_time;
  }
  cell.reader = self.number;
  cell.reader_time = time;
}

bool in_order(std::uint16_t other, std::uint32_t time) {
  const Thread& self = *current_thread;
  if (other == self.number || other == kNoThread) return true;
  const Warp& warp = current_block->warp(self.warp);
  if (other / kWarpSize == self.warp &&
      (time < warp.full_time || (warp.partial && time < warp.clock[self.lane][other % kWarpSize])))
    return true;
  return warp.known.includes(other, time);
}

void pass_time(Warp& warp, unsigned mask, unsigned existing) {
  const std::uint32_t now = ++warp.time;
  if (mask == existing) {
    warp.full_time = now;
    warp.partial = false;
    return;
  }
  if (!warp.partial) {
    std::memset(warp.clock, 0, sizeof(warp.clock));
    warp.partial = true;
  }
  std::uint32_t clock[kWarpSize] = {};  // the maximum over the lanes of the mask
  for_lanes(mask, [&](unsigned lane) {
    for (unsigned other = 0; other < kWarpSize; ++other) {
      clock[other] = std::max(clock[other], warp.clock[lane][other]);
    }
  });
  for_lanes(mask, [&](unsigned lane) { clock[lane] = now; });
  for_lanes(mask, [&](unsigned lane) { std::copy_n(clock, kWarpSize, warp.clock[lane]); });
}

}  // namespace stagegpt::gpu::emulation
