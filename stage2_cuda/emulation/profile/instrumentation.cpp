// The functions that code compiled with -fsanitize=thread calls before each access to memory. In place of
// ThreadSanitizer's library, they tell the profiler of each access, with the instruction: the return address.
// Accesses of host code are ignored.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stage2_cuda/emulation/profile/profiler.h"

namespace {

using stagegpt::gpu::emulation::Kind;
using stagegpt::gpu::emulation::profiler;

[[gnu::always_inline]] inline void report(const void* address, std::size_t bytes, Kind kind, void* caller) {
  if (profiler != nullptr) [[likely]]
    profiler->access(address, bytes, kind, caller);
}

}  // namespace

#define STAGEGPT_ACCESS(bytes)                                                                              \
  void __tsan_read##bytes(void* a) { report(a, bytes, Kind::read, __builtin_return_address(0)); }           \
  void __tsan_write##bytes(void* a) { report(a, bytes, Kind::write, __builtin_return_address(0)); }         \
  void __tsan_unaligned_read##bytes(void* a) { report(a, bytes, Kind::read, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(void* a) { report(a, bytes, Kind::write, __builtin_return_address(0)); }

// The atomic operations of one width. Their memory orders are taken to be sequentially consistent.
#define STAGEGPT_ATOMIC(bits, T)                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* a, int) { return __atomic_load_n(a, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) { __atomic_store_n(a, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) {                                             \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) {                                            \
    report(const_cast<T*>(a), sizeof(T), Kind::atomic, __builtin_return_address(0));                      \
    return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) {                                            \
    return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* e, T v, int, int) {                 \
    return __atomic_compare_exchange_n(a, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
  }                                                                                                       \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* e, T v, int, int) {                   \
    return __atomic_compare_exchange_n(a, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);               \
  }

extern "C" {

STAGEGPT_ACCESS(1)
STAGEGPT_ACCESS(2)
STAGEGPT_ACCESS(4)
STAGEGPT_ACCESS(8)
STAGEGPT_ACCESS(16)

void __tsan_read_range(void* a, std::size_t bytes) {
  report(a, bytes, Kind::read, __builtin_return_address(0));
}
void __tsan_write_range(void* a, std::size_t bytes) {
  report(a, bytes, Kind::write, __builtin_return_address(0));
}

STAGEGPT_ATOMIC(8, std::uint8_t)
STAGEGPT_ATOMIC(32, std::uint32_t)
STAGEGPT_ATOMIC(64, std::uint64_t)

void __tsan_atomic_thread_fence(int) {
  if (profiler != nullptr) profiler->fence();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

}  // extern "C"
