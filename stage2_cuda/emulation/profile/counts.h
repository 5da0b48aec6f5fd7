// What a profile counts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "stage2_cuda/emulation/thread.h"

namespace stagegpt::gpu::emulation {

// An access of a warp: what one instruction of its lanes reads or writes, and what that costs on a GPU.
//
// Global memory. The L1 cache moves sectors of 32 bytes, four of which are a line. A request is one
// instruction of a warp; Nsight Compute calls the number of distinct sectors that it touches "sectors per
// request". Ideal is the number of sectors that its distinct bytes would fill: ceil(bytes / 32). The
// efficiency is ideal / touched. Nothing is known here of which sectors are in a cache.
//
// Shared memory has 32 banks of 4 bytes; the 4-byte word w is in bank w mod 32. A bank gives one word per
// wavefront, to any number of lanes. 32 lanes of up to 4 bytes are one phase; lanes of 8 bytes are two phases
// of 16 lanes, lanes of 16 bytes four phases of 8 lanes. A phase takes as many wavefronts as the bank with
// the most distinct words has of them: n wavefronts are an n-way bank conflict.
struct WarpAccess {
  unsigned mask = 0;   // the lanes that take part
  unsigned bytes = 0;  // of each lane
  // In shared memory, they count from the beginning of the block's.
  std::array<std::uintptr_t, kWarpSize> address = {};
};

using Count = std::uint64_t;

enum class Kind : std::uint8_t { read, write, atomic };

// The address behind an instruction of the kernel, as a return address.
using Instruction = const void*;

// The accesses of one instruction, or of one source line.
struct AccessCounts {
  bool shared = false;  // in shared memory; else in global memory
  Kind kind = Kind::read;
  unsigned bytes = 0;                          // of a lane
  Count requests = 0, lanes = 0;               // warp accesses, and the lanes that took part
  Count existing_lanes = 0;                    // the lanes that the warps of these requests have
  Count sectors = 0, ideal_sectors = 0;        // of global memory
  Count wavefronts = 0, ideal_wavefronts = 0;  // of shared memory; ideal: one for each phase that has a lane
  unsigned ways = 0;                           // the worst bank conflict: the most wavefronts of a phase

  void add(const WarpAccess& access, unsigned existing);
  void add(const AccessCounts& other);
};

// Barriers, warp calls, products and copies of one line.
struct CallCounts {
  Count calls = 0;  // of a block, a warp or, to start a copy, a lane
  Count lanes = 0;
};

struct Bytes {
  Count read = 0, written = 0;
  Bytes& operator+=(const Bytes& other) {
    read += other.read;
    written += other.written;
    return *this;
  }
  Count all() const { return read + written; }
};

// Global memory that threads ask for, and the distinct bytes of each launch among it: the least that the
// launch moves from and to DRAM. Bytes that a launch reads after it has written them are not read from
// outside.
struct Traffic {
  Bytes requested, distinct;
  Traffic& operator+=(const Traffic& other) {
    requested += other.requested;
    distinct += other.distinct;
    return *this;
  }
};

constexpr std::size_t kNoArgument = 0;

// Two threads that access the same bytes of global memory in one launch with nothing that orders them.
struct Race {
  std::string kernel;
  Instruction first = nullptr, second = nullptr;
  Kind first_kind = {}, second_kind = {};
  std::string first_thread, second_thread;  // "block 3, thread 7"; of the first instance
  std::size_t argument = kNoArgument;
  Count byte = 0;  // behind the argument
  Count instances = 0;
};

struct KernelCounts {
  Count launches = 0, blocks = 0;
  unsigned block_threads = 0;                                         // of the last launch
  std::size_t shared_bytes = 0;                                       // the most of a block
  std::map<std::pair<Instruction, unsigned>, AccessCounts> accesses;  // by bytes, too: a copy's may differ
  std::map<std::pair<std::string, std::string>, CallCounts> calls;    // by call and line, as "reduce.cuh:91"
  std::map<std::size_t, Traffic> arguments;                           // by number of the pointer argument
  void add(Instruction instruction, const AccessCounts& request) {
    const auto [counts, is_new] = accesses.try_emplace({instruction, request.bytes}, request);
    if (!is_new) counts->second.add(request);
  }
  Traffic traffic() const {
    Traffic sum;
    for (const auto& [number, traffic] : arguments) sum += traffic;
    return sum;
  }
};

// An op of the backend.
struct OpCounts {
  Count calls = 0;
  double budget = 0;  // bytes, by the op's work()
  Traffic kernels;
  Count launches = 0;
  Bytes moved;     // by copies and fills of the runtime
  Bytes products;  // of the operands of a library's matrix products, which are not observed
  double counted() const {
    return static_cast<double>(kernels.distinct.all() + moved.all() + products.all());
  }
};

struct Profile {
  std::map<std::string, KernelCounts> kernels;
  std::map<std::string, OpCounts> ops;
  std::vector<Race> races;
};

}  // namespace stagegpt::gpu::emulation
