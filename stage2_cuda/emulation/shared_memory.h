// The memory that the threads of a block share, and who touched it: a word that nobody has written in this
// block holds NaN, and reading it is an error; so is touching what another thread touched with no barrier in
// between, where either of them writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

constexpr std::size_t kSharedBytes = std::size_t{48} << 10;
constexpr std::uint16_t kNobody = 0xFFFF;

// Of one element: its last writer, and of its readers since the last __syncthreads the last two lanes of one
// warp and one thread of another warp. A writer who is in order with these is in order with all: among
// readers of two warps there is always one of another warp than the writer's; within a warp, a __syncwarp of
// all lanes that comes after the last reader comes after the earlier ones too.
struct Cell {
  std::uint32_t write_epoch = 0, read_epoch = 0;    // epochs pass with each __syncthreads and each block
  std::uint32_t write_time = 0;                     // of the writer's warp
  std::uint32_t reader_time = 0, earlier_time = 0;  // of the readers' warp
  std::uint16_t writer = 0, reader = 0, earlier = kNobody, other_warp = kNobody;
};

struct SharedDeclaration {
  const char* name;
  std::size_t element_bytes;
  std::size_t count;  // of elements; dynamic memory: 0
};

// An array as its elements know it.
struct SharedSpan {
  const SharedDeclaration* declaration = nullptr;
  void* data = nullptr;
  Cell* cells = nullptr;
  std::size_t count = 0;
};

class SharedMemory {
 public:
  SharedMemory();

  void begin_block(std::size_t dynamic_bytes);
  void pass_barrier() { ++epoch_; }

  // The block's array of a declaration, which the first thread to ask for it makes. Throws KernelError.
  SharedSpan array(const SharedDeclaration& declaration);

  // What the running thread is about to do. Throws KernelError.
  void read(const SharedSpan& array, std::int64_t i);
  void write(const SharedSpan& array, std::int64_t i);

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  SharedSpan make(const SharedDeclaration& declaration);
  bool in_order(std::uint16_t other, std::uint32_t time) const;
  void note_reader(Cell& cell) const;
  void check_bounds(const SharedSpan& array, std::int64_t i, const char* does) const;
  void check_readers(const SharedSpan& array, std::int64_t i, const Cell& cell) const;

  std::unique_ptr<void, Free> bytes_;
  std::unique_ptr<Cell[], Free> cells_;
  std::uint32_t epoch_ = 0, first_epoch_ = 0;  // now, and when the block began
  std::size_t dynamic_bytes_ = 0, used_bytes_ = 0, used_cells_ = 0;
  std::size_t dynamic_element_bytes_ = 0;  // 0: not declared yet
  static constexpr std::size_t kMaxArrays = 32;
  SharedSpan arrays_[kMaxArrays];
  std::size_t array_count_ = 0;
};

// A __syncwarp of a warp's lanes, of which `existing` are there.
void pass_time(Warp& warp, unsigned mask, unsigned existing);

}  // namespace stagegpt::gpu::emulation
