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
  DeviceCount graphs = 0, in_graphs = 0;

  DeviceWork work() const {
    return {kernels, products, fills, copies, allocations, waits, graphs, in_graphs};
  }
  // What was captured is counted when its graph is launched.
  void take_back(const DeviceWork& captured) { add(captured, -1); }
  void launched_graph(const DeviceWork& captured) {
    add(captured, 1);
    ++graphs;
    in_graphs += captured.launches();
  }

 private:
  void add(const DeviceWork& captured, std::int64_t times) {
    kernels += times * captured.kernels;
    products += times * captured.products;
    fills += times * captured.fills;
    copies += times * captured.copies;
  }
};

inline DeviceCounts device_counts;

}  // namespace stagegpt::gpu
