#include "stage2_cuda/emulation/async_copies.h"

#include <cstring>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {

void AsyncCopies::begin(const SharedSpan& array, std::int64_t i,
                        const std::array<std::byte, kCopyBytes>& bytes) {
  const auto count = static_cast<std::int64_t>(kCopyBytes / array.declaration->element_bytes);
  for (std::int64_t j = 0; j < count; ++j) current_block->shared().begin_copy(array, i + j);
  of_thread_[current_thread->number].push_back({array, i, bytes});
  if (launch_observer != nullptr) {
    const void* const to = static_cast<const std::byte*>(array.data) +
                           static_cast<std::size_t>(i) * array.declaration->element_bytes;
    launch_observer->copies_to_shared(to, kCopyBytes, __builtin_return_address(0));
  }
}

void AsyncCopies::wait() {
  std::vector<Copy>& copies = of_thread_[current_thread->number];
  for (const Copy& copy : copies) {
    const std::size_t bytes = copy.array.declaration->element_bytes;
    for (std::size_t j = 0; j < kCopyBytes / bytes; ++j) {
      current_block->shared().end_copy(copy.array, copy.i + static_cast<std::int64_t>(j));
    }
    std::memcpy(static_cast<std::byte*>(copy.array.data) + static_cast<std::size_t>(copy.i) * bytes,
                copy.bytes.data(), kCopyBytes);
  }
  copies.clear();
}

void AsyncCopies::forget_all() {
  for (std::vector<Copy>& copies : of_thread_) copies.clear();
}

}  // namespace stagegpt::gpu::emulation
