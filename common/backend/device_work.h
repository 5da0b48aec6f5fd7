// What a program has asked of its device: counts, which do not depend on the device's speed.
#pragma once

#include <cstdint>

namespace stagegpt {

struct DeviceWork {
  std::int64_t kernels = 0;      // launched: our own
  std::int64_t products = 0;     // calls of a library's GEMM, of one or more kernels each
  std::int64_t fills = 0;        // memory set to zero
  std::int64_t copies = 0;       // to the device, from it, and on it
  std::int64_t allocations = 0;  // of device memory by the driver
  std::int64_t waits = 0;        // calls that wait for the device; they return at once if it is done
  std::int64_t graphs = 0;       // launched; their kernels, products, fills and copies are counted above
  std::int64_t in_graphs = 0;    // launches() that were not the host's, but a graph's

  std::int64_t launches() const { return kernels + products + fills; }
};

inline DeviceWork operator-(const DeviceWork& a, const DeviceWork& b) {
  return {a.kernels - b.kernels, a.products - b.products,       a.fills - b.fills,
          a.copies - b.copies,   a.allocations - b.allocations, a.waits - b.waits,
          a.graphs - b.graphs,   a.in_graphs - b.in_graphs};
}

}  // namespace stagegpt
