#include "stage2_cuda/emulation/profile/summary.h"

#include <algorithm>
#include <set>

namespace stagegpt::gpu::emulation {
namespace {

double share(Count part, Count whole) {
  return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
}

std::map<Instruction, LineChain> all_lines(const Profile& profile) {
  std::set<Instruction> callers;
  for (const auto& [name, kernel] : profile.kernels) {
    for (const auto& [access, counts] : kernel.accesses) callers.insert(access.first);
  }
  return lines_of({callers.begin(), callers.end()});
}

KernelSummary summary_of(const std::string& name, const KernelCounts& kernel,
                         const std::map<Instruction, LineChain>& lines) {
  KernelSummary summary{.name = name, .counts = &kernel};
  summary.shared_total.shared = true;
  // Copies of a line's instruction, as in an unrolled loop, are one.
  using Key = std::tuple<LineChain, bool, Kind, unsigned>;
  std::map<Key, AccessCounts> merged;
  for (const auto& [access, counts] : kernel.accesses) {
    const Key key{lines.at(access.first), counts.shared, counts.kind, counts.bytes};
    const auto [entry, is_new] = merged.try_emplace(key, counts);
    if (!is_new) entry->second.add(counts);
    (counts.shared ? summary.shared_total : summary.global_total).add(counts);
  }
  for (const auto& [key, counts] : merged) summary.lines.push_back({std::get<0>(key), counts});
  return summary;
}

}  // namespace

Summary summary_of(const Profile& profile, const ResourceTable& resources) {
  Summary summary{.profile = &profile, .kernels = {}, .races = {}, .lines = all_lines(profile)};
  for (const auto& [name, kernel] : profile.kernels) {
    summary.kernels.push_back(summary_of(name, kernel, summary.lines));
    summary.kernels.back().resources = resources_of(resources, name);
  }
  std::ranges::stable_sort(summary.kernels, std::greater(),
                           [](const KernelSummary& kernel) { return kernel.global_total.sectors; });
  for (const Race& race : profile.races) {
    summary.races.push_back({&race, summary.lines.at(race.first), summary.lines.at(race.second)});
  }
  return summary;
}

double sector_efficiency(const AccessCounts& counts) { return share(counts.ideal_sectors, counts.sectors); }
double active_lanes(const AccessCounts& counts) { return share(counts.lanes, counts.existing_lanes); }
double conflict_factor(const AccessCounts& counts) {
  return share(counts.wavefronts, counts.ideal_wavefronts);
}

Occupancy occupancy_of(const KernelSummary& kernel) {
  return occupancy_of(kernel.counts->block_threads, kernel.counts->shared_bytes, kernel.resources.registers);
}

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"read", "write", "atomic"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace stagegpt::gpu::emulation
