// Assigns a GPU of its node to each rank.
#pragma once

#include <optional>
#include <utility>

#include "stage1_mpi/placement.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// The rank's index on its node, modulo the number of GPUs that it sees. A launcher may make a different GPU
// visible to each rank.
int default_device(const Placement& placement, int devices);

// The first two ranks that use the same GPU, if there are any. Collective call.
std::optional<std::pair<int, int>> ranks_on_one_gpu(RankGroup& group, const Placement& placement,
                                                    const DeviceInfo& device);

// The number of ranks that use this rank's GPU, including this rank. Collective call.
int ranks_on_gpu_of(RankGroup& group, const Placement& placement, const DeviceInfo& device);

}  // namespace stagegpt::gpu
