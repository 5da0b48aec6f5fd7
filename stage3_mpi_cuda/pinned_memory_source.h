// Pinned host memory for a backend's allocator. Copies to and from the device need no staging buffer.
#pragma once

#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

class PinnedMemorySource : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override { return allocate_pinned(bytes); }
  void deallocate(void* block, std::size_t) noexcept override { deallocate_pinned(block); }
};

}  // namespace stagegpt::gpu
