// Asynchronous copies of 16 bytes from device memory to shared memory. On a GPU the elements change at some
// time between the copy's call and the end of cp_async_wait_all. Here they change in cp_async_wait_all, and
// until then every access to them is an error.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "stage2_cuda/emulation/shared_memory.h"

namespace stagegpt::gpu::emulation {

constexpr std::size_t kCopyBytes = 16;

class AsyncCopies {
 public:
  // Begins a copy of `bytes` for the running thread. Throws KernelError.
  void begin(const SharedSpan& array, std::int64_t i, const std::array<std::byte, kCopyBytes>& bytes);
  // Ends all copies of the running thread.
  void wait();

  bool has_copies(const Thread& thread) const { return !of_thread_[thread.number].empty(); }
  void forget_all();

 private:
  struct Copy {
    SharedSpan array;
    std::int64_t i;
    std::array<std::byte, kCopyBytes> bytes;
  };
  std::array<std::vector<Copy>, kMaxBlockThreads> of_thread_;
};

}  // namespace stagegpt::gpu::emulation
