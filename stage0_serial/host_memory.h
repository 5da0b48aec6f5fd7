// The memory source of the CPU backend: the host's heap.
#pragma once

#include "common/tensor/caching_allocator.h"

namespace stagegpt {

class HostMemory : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override;
  void deallocate(void* block, std::size_t bytes) noexcept override;
};

}  // namespace stagegpt
