#include "stage0_serial/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>

namespace stagegpt {

void* HostMemory::allocate(std::size_t bytes) {
  // Large blocks are aligned to huge pages and request them: fewer page faults and TLB misses.
  constexpr std::size_t kCacheLine = 64, kHugePage = std::size_t{1} << 21;
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kCacheLine;
  void* block = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block != nullptr && alignment == kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void HostMemory::deallocate(void* block, std::size_t) noexcept { std::free(block); }

}  // namespace stagegpt
