#include "stage3_mpi_cuda/gpu_binding.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/comm/agreement.h"

namespace stagegpt::gpu {
namespace {

// One GPU among all nodes.
struct Gpu {
  int node;  // the first of its ranks
  char id[64] = {};
};

// Which GPU is it?
using GpuName = std::pair<int, std::string>;

// That of each rank.
std::vector<GpuName> gpus_of_ranks(RankGroup& group, const Placement& placement, const DeviceInfo& device) {
  Gpu own{.node = placement.on_node.front()};
  std::strncpy(own.id, device.id.c_str(), sizeof own.id - 1);
  std::vector<GpuName> names;
  for (const Gpu& gpu : gather(group, own)) names.emplace_back(gpu.node, gpu.id);
  return names;
}

}  // namespace

int usual_device(const Placement& placement, int devices) { return placement.node_rank % devices; }

std::optional<std::pair<int, int>> ranks_on_one_gpu(RankGroup& group, const Placement& placement,
                                                    const DeviceInfo& device) {
  const std::vector<GpuName> gpus = gpus_of_ranks(group, placement, device);
  std::map<GpuName, int> owners;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto [owner, is_first] = owners.emplace(gpus[static_cast<std::size_t>(rank)], rank);
    if (!is_first) return std::pair(owner->second, rank);
  }
  return std::nullopt;
}

int ranks_on_gpu_of(RankGroup& group, const Placement& placement, const DeviceInfo& device) {
  const std::vector<GpuName> gpus = gpus_of_ranks(group, placement, device);
  return static_cast<int>(std::ranges::count(gpus, gpus[static_cast<std::size_t>(group.rank())]));
}

}  // namespace stagegpt::gpu
