// Counts what this process asks of its device (common/backend/device_work.h). Both implementations of
// launch.h, gemm.h and runtime.h add to them.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/backend/device_work.h"

namespace stagegpt::gpu {

using DeviceCount = std::atomic<std::int64_t>;

struct DeviceCounts {
  DeviceCount kernels = 0, products = 0, fills = 0, copies = 0, allocations = 0, waits = 0;

  DeviceWork work() const { return {kernels, products, fills, copies, allocations, waits}; }
};

inline DeviceCounts device_counts;

}  // namespace stagegpt::gpu
