// A profile by source line, as reports show it.
#pragma once

#include <string>
#include <vector>

#include "stage2_cuda/emulation/profile/counts.h"
#include "stage2_cuda/emulation/profile/occupancy.h"
#include "stage2_cuda/emulation/profile/source_lines.h"

namespace stagegpt::gpu::emulation {

// All accesses of one size and kind in one line of a kernel.
struct LineAccess {
  LineChain chain;
  AccessCounts counts;
};

struct KernelSummary {
  std::string name;
  const KernelCounts* counts = nullptr;
  std::vector<LineAccess> lines = {};  // in the order of the source
  AccessCounts global_total = {}, shared_total = {};
  KernelResources resources = {};  // no registers if they are not known
};

struct RaceSummary {
  const Race* race = nullptr;
  LineChain first, second;
};

struct Summary {
  const Profile* profile = nullptr;
  std::vector<KernelSummary> kernels;  // those with the most sectors first
  std::vector<RaceSummary> races;
  std::map<Instruction, LineChain> lines;  // of all instructions
};

// `profile` must outlive the summary.
Summary summary_of(const Profile& profile, const ResourceTable& resources = {});

// Shares from 0 to 1; 1 of nothing.
double sector_efficiency(const AccessCounts& counts);
double active_lanes(const AccessCounts& counts);
// Wavefronts per ideal wavefront: 1 without bank conflicts.
double conflict_factor(const AccessCounts& counts);

// By the threads and the shared memory that the emulator has seen, and the registers if they are known.
Occupancy occupancy_of(const KernelSummary& kernel);

const char* name_of(Kind kind);

}  // namespace stagegpt::gpu::emulation
