// Puts the accesses of threads together to accesses of their warp. The lanes of a warp run one after the
// other here, so their accesses are kept until they meet at a barrier or a warp call, or end: then the n-th
// execution of an instruction by each lane since the last meeting is one access of the warp.
#pragma once

#include <array>
#include <unordered_map>
#include <vector>

#include "stage2_cuda/emulation/block.h"
#include "stage2_cuda/emulation/profile/counts.h"

namespace stagegpt::gpu::emulation {

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

}  // namespace stagegpt::gpu::emulation
