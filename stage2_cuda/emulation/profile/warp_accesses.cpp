#include "stage2_cuda/emulation/profile/warp_accesses.h"

namespace stagegpt::gpu::emulation {

std::size_t WarpAccesses::number_of(Instruction instruction, const AccessCounts& of_lane) {
  if (instruction == last_) return last_number_;
  const auto [found, is_new] = numbers_.try_emplace(instruction, sites_.size());
  if (is_new)
    sites_.push_back({.instruction = instruction, .of_lane = of_lane, .executions = {}, .accesses = {}});
  last_ = instruction;
  last_number_ = found->second;
  return last_number_;
}

void WarpAccesses::add(unsigned lane, Instruction instruction, std::uintptr_t address,
                       const AccessCounts& of_lane) {
  const std::size_t number = number_of(instruction, of_lane);
  Site& site = sites_[number];
  if (site.accesses.empty()) used_.push_back(number);
  const unsigned execution = site.executions[lane]++;
  if (execution == site.accesses.size()) site.accesses.push_back({.bytes = of_lane.bytes});
  WarpAccess& access = site.accesses[execution];
  access.mask |= 1U << lane;
  access.address[lane] = address;
}

}  // namespace stagegpt::gpu::emulation
