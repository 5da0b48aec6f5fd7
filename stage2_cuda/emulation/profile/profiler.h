// Counts what launches do to memory. Instrumented code (instrumentation.cpp) reports each access of a thread,
// the emulator its blocks, barriers and warp calls. While a profiler exists, one OS thread runs the blocks,
// in order.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/launch_observer.h"
#include "stage2_cuda/emulation/profile/block_trace.h"
#include "stage2_cuda/emulation/profile/counts.h"
#include "stage2_cuda/emulation/profile/device_shadow.h"

namespace stagegpt::gpu::emulation {

// Puts the accesses of threads together to accesses of their warp. The lanes of a warp run one after the
// other here, so their accesses are kept until they meet at a barrier or a warp call, or end: then the n-th
// execution of an instruction by each lane since the last meeting is one access of the warp.

class WarpAccesses {
 public:
  // An access of a lane. `of_lane` has its kind of memory, its kind and its bytes.
  void add(unsigned lane, Instruction instruction, std::uintptr_t address, const AccessCounts& of_lane);

  // Calls take(instruction, of_lane, access) for each access of the warp, and forgets all.
  template <class Take>
  void finish(const Take& take) {
    for (const std::size_t number : used_) {
      Site& site = sites_[number];
      for (const WarpAccess& access : site.accesses) take(site.instruction, site.of_lane, access);
      site.accesses.clear();
      site.executions = {};
    }
    used_.clear();
  }
  void forget_instructions() {
    numbers_.clear();
    sites_.clear();
    used_.clear();
    last_ = nullptr;
  }

 private:
  struct Site {
    Instruction instruction = nullptr;
    AccessCounts of_lane;
    std::array<unsigned, kWarpSize> executions = {};
    std::vector<WarpAccess> accesses;
  };

  std::size_t number_of(Instruction instruction, const AccessCounts& of_lane);

  std::unordered_map<Instruction, std::size_t> numbers_;
  std::vector<Site> sites_;
  std::vector<std::size_t> used_;  // sites with accesses
  Instruction last_ = nullptr;
  std::size_t last_number_ = 0;
};

class Profiler final : public LaunchObserver {
 public:
  Profiler();
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // An access of the running thread; none of a kernel if it is null. The instruction is before `caller`.
  void access(const void* address, std::size_t bytes, Kind kind, Instruction caller);
  void fence();
  // The op that launches from now on belong to; null for none.
  void set_op(OpCounts* op) { op_ = op; }

  // Records what a block of a launch to come does.
  void trace(BlockTrace trace) { trace_ = std::move(trace); }

  Profile& profile() { return profile_; }
  // What trace() was given, if it was called.
  const std::optional<BlockTrace>& block_trace() const { return trace_; }

  void begin_launch(const Launch& launch) override;
  void end_launch() override;
  void begin_block(const Block& block) override;
  void end_block() override;
  void at_barrier(const char* call, Where where) override;
  void at_warp_call(const Thread& self) override;
  void copies_to_shared(const void* to, std::size_t bytes, const void* caller) override;
  void reads_for_copy(const void* from, std::size_t bytes, const void* caller) override;
  void count_call(const char* call, Where where, unsigned lanes) override;
  void moves(Mover mover, std::size_t bytes_read, std::size_t bytes_written) override;

 private:
  void add_global(std::uintptr_t address, const AccessCounts& of_lane, Instruction caller);
  void finish(unsigned warp);
  void report_race(const Stamp& first, std::uintptr_t address, Kind kind, Instruction caller);
  std::string name_of(std::uint32_t block, std::uint16_t thread) const;

  Profile profile_;
  OpCounts* op_ = nullptr;
  // The launch that runs:
  const Launch* launch_ = nullptr;
  KernelCounts* kernel_ = nullptr;
  std::vector<PointerArgument> arguments_;  // by address
  const Block* block_ = nullptr;
  std::uintptr_t shared_begin_ = 0, device_begin_ = 0, device_bytes_ = 0;
  std::array<WarpAccesses, kMaxBlockThreads / kWarpSize> warps_;
  DeviceShadow shadow_;
  std::optional<BlockTrace> trace_;
  bool tracing_ = false;  // whether the block that runs is the traced one
};

// Null unless a profiler exists.
extern constinit Profiler* profiler;

}  // namespace stagegpt::gpu::emulation
