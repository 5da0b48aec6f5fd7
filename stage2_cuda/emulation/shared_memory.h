// The shared memory of a block, with a race detector. It is filled with NaN. Errors are: to read an element
// that no thread of the block has written, and to access an element that another thread has accessed with no
// barrier in between, if one of them writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

// What a block may have. A launch with dynamic shared memory asks for more than the default where it needs it
// (launch.h), and may have what every GPU of compute capability 8.0 or later has.
constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10;
constexpr std::size_t kSharedBytes = std::size_t{99} << 10;
constexpr std::size_t kLeastSharedBytes = std::size_t{64} << 10;  // of compute capability 7.5
constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;  // of compute capability 9.0
// The most shared memory that a block of the emulated device may have.
std::size_t shared_bytes_limit();
constexpr std::uint16_t kNoThread = 0xFFFF,
                        kCopying = 0xFFFE;  // the latter: an asynchronous copy is under way

// The recorded accesses to one element: its last writer and, since the last __syncthreads, the last two
// reading lanes of one warp and one reading thread of another warp. A reader that is ordered before a new one
// gives way to it: what is ordered after the new one is ordered after both. Within a warp, a __syncwarp of
// all lanes after the last reader is also after the earlier ones. Of three warps that no barrier orders, one
// is not recorded.
struct Cell {
  std::uint32_t write_epoch = 0, read_epoch = 0;    // each __syncthreads and each block begins an epoch
  std::uint32_t write_time = 0;                     // time of the writer's warp
  std::uint32_t reader_time = 0, earlier_time = 0;  // times of the readers' warp
  std::uint32_t other_time = 0;                     // time of the other warp
  std::uint16_t writer = 0, reader = 0, earlier = kNoThread, other_warp = kNoThread;
};

struct SharedDeclaration {
  const char* name;
  std::size_t element_bytes;
  std::size_t count;  // number of elements; 0 for dynamic shared memory
};

// A declared array: its memory, and the recorded accesses.
struct SharedSpan {
  const SharedDeclaration* declaration = nullptr;
  void* data = nullptr;
  Cell* cells = nullptr;
  std::size_t count = 0;

  bool has(std::int64_t i) const { return static_cast<std::size_t>(i) < count; }  // negative ones are large
};

class SharedMemory {
 public:
  SharedMemory();

  void begin_block(std::size_t dynamic_bytes);
  void pass_syncthreads() { ++epoch_; }
  // Each __syncthreads and each block begins one.
  std::uint32_t epoch() const { return epoch_; }
  // Where a block's shared memory begins, of kMostSharedBytes.
  const void* begin() const { return bytes_.get(); }
  // The arrays that the block has declared so far.
  std::span<const SharedSpan> arrays() const { return {arrays_, array_count_}; }
  // The bytes that the block's arrays take.
  std::size_t used_bytes() const { return used_bytes_; }

  // The block's array of a declaration; the first call creates it. Throws KernelError.
  SharedSpan array(const SharedDeclaration& declaration);

  // Checks and records an access of the running thread. Throws KernelError.
  void read(const SharedSpan& array, std::int64_t i);
  void write(const SharedSpan& array, std::int64_t i);
  // An asynchronous copy writes the element at an unknown time in between. Throw KernelError.
  void begin_copy(const SharedSpan& array, std::int64_t i);
  void end_copy(const SharedSpan& array, std::int64_t i);
  // A copy of the copy engine will write elements: it races with accesses that are not ordered before the
  // running thread, which starts it. Throws KernelError.
  void check_may_copy(const SharedSpan& array, std::int64_t first, std::size_t count) const;
  // It has written them. Its barrier orders it (barriers.h).
  void written_by_copy(const SharedSpan& array, std::int64_t first, std::size_t count);

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  SharedSpan make(const SharedDeclaration& declaration);
  void record_reader(Cell& cell) const;
  void record_writer(Cell& cell) const;
  [[noreturn, gnu::cold]] void refuse(const SharedSpan& array, std::int64_t i, const char* does) const;
  void check_ordered(const SharedSpan& array, std::int64_t i, const char* does) const;

  std::unique_ptr<void, Free> bytes_;
  std::unique_ptr<Cell[], Free> cells_;
  std::uint32_t epoch_ = 0, first_epoch_ = 0;  // the current epoch, and the block's first
  std::size_t dynamic_bytes_ = 0, used_bytes_ = 0, used_cells_ = 0;
  std::size_t dynamic_element_bytes_ = 0;  // 0 before the declaration
  static constexpr std::size_t kMaxArrays = 32;
  SharedSpan arrays_[kMaxArrays];
  std::size_t array_count_ = 0;
};

// Whether an access of thread `other`, at a time of its warp and since the last __syncthreads, came before
// those of the running thread: they are of one thread, or a __syncwarp or another barrier was in between.
bool in_order(std::uint16_t other, std::uint32_t time);

// Records a __syncwarp of the lanes `mask`, in a warp with the lanes `existing`.
void pass_time(Warp& warp, unsigned mask, unsigned existing);

}  // namespace stagegpt::gpu::emulation
