// Which GPU of its node a rank computes on.
#pragma once

#include <optional>
#include <utility>

#include "stage1_mpi/placement.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

// The rank's place on its node, counted round the GPUs that it sees: a launcher may show each rank one of its
// own.
int usual_device(const Placement& placement, int devices);

// The first two ranks that compute on one GPU, if there are any. A collective call.
std::optional<std::pair<int, int>> ranks_on_one_gpu(RankGroup& group, const Placement& placement,
                                                    const DeviceInfo& device);

// How many ranks compute on this one's GPU, itself included. A collective call.
int ranks_on_gpu_of(RankGroup& group, const Placement& placement, const DeviceInfo& device);

}  // namespace stagegpt::gpu
