#include "stage2_cuda/emulation/async_copies.h"

#include <cstring>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {

void AsyncCopies::begin(const SharedSpan& array, std::int64_t i, const void* from) {
  const auto count = static_cast<std::int64_t>(kCopyBytes / array.declaration->element_bytes);
  for (std::int64_t j = 0; j < count; ++j) current_block->shared().begin_copy(array, i + j);
  Copy& copy = of_thread_[current_thread->number].emplace_back(Copy{array, i, {}});
  if (from != nullptr) std::memcpy(copy.bytes.data(), from, kCopyBytes);
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
