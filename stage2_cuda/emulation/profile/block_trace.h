// What one block does, event by event, for the page that steps through it (block_page.cpp).
//
// An event is a request of a warp, a call of a warp, or a barrier of the block. Requests are those that the
// report counts (counts.h). Time is logical: the n-th event of each warp since the last barrier has the
// n-th column since that barrier. A barrier has a column of its own, behind the last event of all warps. So
// the width of a column is not a time, and warps do not wait for each other between barriers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/profile/counts.h"

namespace stagegpt::gpu::emulation {

// The block that --emulator-block names.
struct BlockChoice {
  std::string kernel;
  std::uint64_t launch = 0;  // which of the launches of `kernel`, from 0
  std::uint64_t block = 0;   // its number in the grid, from 0, x first

  // `kernel` is the whole name, as "sum_kernel<float, 4>", or the name without template arguments, which
  // means the launches of all of them.
  bool names(std::string_view launched) const;
};

// Parses KERNEL[:LAUNCH[:BLOCK]]. A name may contain "::". Throws UserError.
BlockChoice parsed_block_choice(const std::string& text);

struct BlockEvent {
  enum class Type : std::uint8_t { access, warp_call, barrier };

  Type type = Type::access;
  std::size_t column = 0;
  unsigned warp = 0;  // 0 for a barrier
  // The lanes that take part, and their addresses: in shared memory from its beginning. For a shuffle, the
  // lanes that they read from. A barrier has none: all threads take part.
  WarpAccess access = {};
  // For an access: its instruction, and the counts of this request.
  Instruction instruction = nullptr;
  AccessCounts counts = {};
  // For a call or a barrier.
  const char* call = nullptr;
  Where where = {};
};

// The argument to which an address belongs: the last one that does not begin behind it. Null if all do.
// `arguments` are sorted by address.
const PointerArgument* argument_at(const std::vector<PointerArgument>& arguments, std::uintptr_t address);

struct TracedArray {
  std::string name;
  std::size_t begin = 0;  // in shared memory
  std::size_t element_bytes = 0, elements = 0;
};

class BlockTrace {
 public:
  // More events than these are counted, but not shown.
  static constexpr std::size_t kMostEvents = 20'000;

  explicit BlockTrace(BlockChoice choice, std::size_t most_events = kMostEvents)
      : choice_(std::move(choice)), most_events_(most_events) {}

  // Throws UserError if this is the chosen launch, and its grid does not have the chosen block.
  void begin_launch(const Launch& launch, const std::vector<PointerArgument>& arguments);
  // Whether the block `number` of the launch that has begun is the chosen one.
  bool begin_block(const Block& block, std::uint64_t number);
  void end_block(const Block& block);

  // An access of a lane, which belongs to a request that add_request() will report.
  void add_lane(const Thread& self, Instruction instruction);
  void add_request(unsigned warp, Instruction instruction, const AccessCounts& counts,
                   const WarpAccess& access);
  // The warp's lanes have met: puts its requests since the last meeting in the order of its lanes.
  void end_segment(unsigned warp);
  // A call of some lanes, which does not end the segment, or of all, which has ended it.
  void add_warp_call(const Block& block, const Thread& self);
  void add_barrier(const char* call, Where where);

  bool found() const { return found_; }
  // Throws UserError unless the chosen block has run. `profile` has the kernels that ran.
  void check_found(const Profile& profile) const;

  const std::string& kernel() const { return kernel_; }
  const BlockChoice& choice() const { return choice_; }
  Index grid() const { return grid_; }
  Index block_shape() const { return shape_; }
  Index index() const { return index_; }
  const std::vector<PointerArgument>& arguments() const { return arguments_; }  // by address
  const std::vector<TracedArray>& arrays() const { return arrays_; }
  std::size_t total_events() const { return total_; }
  // The events of the first columns, at most those that are shown, by column and warp.
  std::vector<BlockEvent> first_events() const;

 private:
  // What a lane has done since the last meeting: its requests by number, where n is the n-th of an
  // instruction, and calls of some lanes.
  struct Step {
    Instruction instruction = nullptr;  // null for a call
    std::size_t number = 0;             // the execution of the instruction by this lane, or the call's place
  };
  struct Segment {
    std::array<std::vector<Step>, kWarpSize> lanes;
    std::array<std::unordered_map<Instruction, std::size_t>, kWarpSize> executions;
    std::vector<BlockEvent> events;
    std::unordered_map<Instruction, std::vector<std::size_t>> requests;  // the places of its events
  };

  void append(BlockEvent event);

  BlockChoice choice_;
  std::size_t most_events_;
  std::uint64_t launches_ = 0;  // of the chosen kernel
  bool in_launch_ = false, found_ = false;
  std::string kernel_;
  Index grid_, shape_, index_;
  std::vector<PointerArgument> arguments_;
  std::vector<TracedArray> arrays_;
  std::array<Segment, kMaxBlockThreads / kWarpSize> segments_;
  std::array<std::size_t, kMaxBlockThreads / kWarpSize> since_barrier_ = {};  // events of a warp
  std::size_t phase_begin_ = 0;                                               // column
  std::size_t total_ = 0;
  std::vector<BlockEvent> events_;
};

}  // namespace stagegpt::gpu::emulation
