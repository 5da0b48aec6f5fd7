// The memory source of the CUDA backend: device memory.
#pragma once

#include <memory>
#include <stdexcept>

#include "common/base/error.h"
#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

struct Deallocate {
  void operator()(void* block) const { deallocate(block); }
};
// Device memory of its own.
using DeviceBlock = std::unique_ptr<void, Deallocate>;

// Throws std::runtime_error if there is no memory left.
inline DeviceBlock device_block(std::size_t bytes) {
  DeviceBlock block(allocate(bytes));
  if (block == nullptr)
    throw std::runtime_error(concat("out of memory: ", bytes, " bytes asked for on the device"));
  return block;
}

class DeviceMemorySource : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override { return gpu::allocate(bytes); }
  void deallocate(void* block, std::size_t) noexcept override { gpu::deallocate(block); }
  void* host_view(void* block) const override { return gpu::host_view(block); }
  std::optional<std::size_t> free_bytes() const override { return memory_info().free; }
};

}  // namespace stagegpt::gpu
