#include "stage3_mpi_cuda/gpu_binding.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/comm/agreement.h"

namespace stagegpt::gpu {
namespace {

// A GPU, unique among all nodes, in a type that all_gather() can send.
struct Gpu {
  int node;  // identified by the first rank on it
  char id[64] = {};
};

// The node and the UUID of a GPU.
using GpuId = std::pair<int, std::string>;

// The GPU of each rank.
std::vector<GpuId> gpus_of_ranks(RankGroup& group, const Placement& placement, const DeviceInfo& device) {
  Gpu own{.node = placement.on_node.front()};
  std::strncpy(own.id, device.id.c_str(), sizeof own.id - 1);
  std::vector<GpuId> names;
  for (const Gpu& gpu : gather(group, own)) names.emplace_back(gpu.node, gpu.id);
  return names;
}

}  // namespace

int default_device(const Placement& placement, int devices) { return placement.node_rank % devices; }

std::optional<std::pair<int, int>> ranks_on_one_gpu(RankGroup& group, const Placement& placement,
                                                    const DeviceInfo& device) {
  const std::vector<GpuId> gpus = gpus_of_ranks(group, placement, device);
  std::map<GpuId, int> owners;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto [owner, is_first] = owners.emplace(gpus[static_cast<std::size_t>(rank)], rank);
    if (!is_first) return std::pair(owner->second, rank);
  }
  return std::nullopt;
}

int ranks_on_gpu_of(RankGroup& group, const Placement& placement, const DeviceInfo& device) {
  const std::vector<GpuId> gpus = gpus_of_ranks(group, placement, device);
  return static_cast<int>(std::ranges::count(gpus, gpus[static_cast<std::size_t>(group.rank())]));
}

}  // namespace stagegpt::gpu
