// What a launch has done to global memory so far: which bytes it has read and written, and by whom, to find
// races.
//
// Two accesses of different threads to the same bytes are a race if one of them writes, not both are atomic,
// and nothing orders them: within a block a __syncthreads or a barrier of hopper.h, within a warp a
// __syncwarp; between blocks an atomic operation on the same address, of the first block after a
// __threadfence and of the second before its access. A launch is ordered after the one before. Of the readers
// of a place the last one is remembered, and one of another block, so a race of another reader can be missed.
// So can one between single bytes of a place of two.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/profile/counts.h"

namespace stagegpt::gpu::emulation {

// Who accesses a place, and when.
struct Stamp {
  std::uint32_t block = kNoBlock;
  std::uint32_t epoch = 0;  // a barrier or a new block begins one
  std::uint32_t time = 0;   // of the warp: thread.h
  std::uint16_t thread = 0;
  Kind kind = Kind::read;
  Instruction instruction = nullptr;

  static constexpr std::uint32_t kNoBlock = 0xFFFFFFFF;
};

class DeviceShadow {
 public:
  void begin_launch();
  void begin_block(std::uint32_t number);
  void pass_barrier() { ++epoch_; }
  void pass_fence() { fence_epoch_ = epoch_; }

  // An access of the running thread. Returns the stamp of an access that it races with, or null; it is valid
  // until the next call.
  const Stamp* access(std::uintptr_t address, unsigned bytes, Kind kind, Instruction instruction);
  std::uint32_t block() const { return block_; }

  // The distinct bytes at addresses in [begin, end).
  Bytes distinct(std::uintptr_t begin, std::uintptr_t end) const;

 private:
  static constexpr std::uintptr_t kPageBytes = 4096, kWords = kPageBytes / 64;
  static constexpr unsigned kWide = 4, kNarrow = 2;  // bytes of a cell
  struct Cell {
    Stamp writer, reader, other_reader;  // the last two: the last reader, and one of another block
  };
  struct Page {
    std::array<std::uint64_t, kWords> read = {}, written = {};  // bits of bytes
    unsigned cell_bytes = kWide;
    std::vector<Cell> cells = std::vector<Cell>(kPageBytes / kWide);
    void split();
  };

  Page& page_at(std::uintptr_t number);
  void mark(Page& page, std::uintptr_t begin, unsigned bytes, Kind kind);
  const Stamp* record(Cell& cell, std::uintptr_t address, const Stamp& now);
  bool ordered(const Stamp& other, std::uintptr_t address, const Stamp& now) const;
  void synchronise(std::uintptr_t address);

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_number_ = 0;
  Page* last_ = nullptr;
  std::uint32_t block_ = 0, epoch_ = 0, fence_epoch_ = 0;
  Stamp found_;
  // For each address of atomic operations, the epoch that each block has released by it.
  std::unordered_map<std::uintptr_t, std::unordered_map<std::uint32_t, std::uint32_t>> released_;
  std::vector<std::uintptr_t> acquired_;  // addresses of atomic operations of the running block
};

}  // namespace stagegpt::gpu::emulation
