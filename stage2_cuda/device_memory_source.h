// The memory source of the CUDA backend: device memory.
#pragma once

#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

class DeviceMemorySource : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override { return gpu::allocate(bytes); }
  void deallocate(void* block, std::size_t) noexcept override { gpu::deallocate(block); }
  void* host_view(void* block) const override { return gpu::host_view(block); }
  std::optional<std::size_t> free_bytes() const override { return memory_info().free; }
};

}  // namespace stagegpt::gpu
