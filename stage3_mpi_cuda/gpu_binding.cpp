#include "stage3_mpi_cuda/gpu_binding.h"

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

}  // namespace

int usual_device(const Placement& placement, int devices) { return placement.node_rank % devices; }

std::optional<std::pair<int, int>> ranks_on_one_gpu(RankGroup& group, const Placement& placement,
                                                    const DeviceInfo& device) {
  Gpu own{.node = placement.on_node.front()};
  std::strncpy(own.id, device.id.c_str(), sizeof own.id - 1);
  const std::vector<Gpu> gpus = gather(group, own);
  std::map<std::pair<int, std::string>, int> owners;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Gpu& gpu = gpus[static_cast<std::size_t>(rank)];
    const auto [owner, is_first] = owners.emplace(std::pair(gpu.node, std::string(gpu.id)), rank);
    if (!is_first) return std::pair(owner->second, rank);
  }
  return std::nullopt;
}

}  // namespace stagegpt::gpu
