// The parts of CUDA C++ that kernels use, for a host compiler. As in CUDA, they are in the global namespace.
#pragma once

#include <math.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "stage2_cuda/emulation/block.h"

#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define STAGEGPT_UNROLL
#define STAGEGPT_NO_UNROLL

#define threadIdx (::stagegpt::gpu::emulation::current_thread->index)
#define blockIdx (::stagegpt::gpu::emulation::current_block->index())
#define blockDim (::stagegpt::gpu::emulation::current_block->launch().block)
#define gridDim (::stagegpt::gpu::emulation::current_block->launch().grid)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1, unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};

namespace stagegpt::gpu::emulation {

[[noreturn]] void fail_width(const char* call, int width, Where where);

// Throws KernelError unless `width` is a valid group size: a power of two from 1 to 32.
inline void check_width(const char* call, int width, Where where) {
  const bool fits = width >= 1 && width <= 32 && std::has_single_bit(static_cast<unsigned>(width));
  if (!fits) [[unlikely]]
    fail_width(call, width, where);
}

template <class T>
T exchange(const char* call, unsigned mask, T value, unsigned source, Where where) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "lanes exchange numbers");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = current_block->exchange(call, mask, bits, source, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace stagegpt::gpu::emulation

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  stagegpt::gpu::emulation::current_block->barrier("__syncthreads", false, where);
}

inline int __syncthreads_or(int predicate, std::source_location where = std::source_location::current()) {
  return stagegpt::gpu::emulation::current_block->barrier("__syncthreads_or", predicate != 0, where) ? 1 : 0;
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFF,
                       std::source_location where = std::source_location::current()) {
  stagegpt::gpu::emulation::current_block->sync_warp(mask, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  return stagegpt::gpu::emulation::current_block->ballot(mask, predicate != 0, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  stagegpt::gpu::emulation::check_width("__shfl_sync", width, where);
  const unsigned lane = stagegpt::gpu::emulation::current_thread->lane;
  const unsigned last = static_cast<unsigned>(width) - 1;
  return stagegpt::gpu::emulation::exchange("__shfl_sync", mask, value,
                                            (lane & ~last) | (static_cast<unsigned>(source) & last), where);
}

// If the source lane is beyond its group, a lane gets its own value.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  std::source_location where = std::source_location::current()) {
  stagegpt::gpu::emulation::check_width("__shfl_xor_sync", width, where);
  const unsigned lane = stagegpt::gpu::emulation::current_thread->lane;
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned last = lane | (static_cast<unsigned>(width) - 1);
  return stagegpt::gpu::emulation::exchange("__shfl_xor_sync", mask, value, source > last ? lane : source,
                                            where);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   std::source_location where = std::source_location::current()) {
  stagegpt::gpu::emulation::check_width("__shfl_down_sync", width, where);
  const unsigned lane = stagegpt::gpu::emulation::current_thread->lane;
  const unsigned last = lane | (static_cast<unsigned>(width) - 1);
  const std::uint64_t source = std::uint64_t{lane} + delta;
  return stagegpt::gpu::emulation::exchange("__shfl_down_sync", mask, value,
                                            source > last ? lane : static_cast<unsigned>(source), where);
}

inline int atomicAdd(int* address, int value) { return std::atomic_ref<int>(*address).fetch_add(value); }

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

inline int __popc(unsigned bits) { return std::popcount(bits); }

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }

inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }

namespace stagegpt::gpu {

inline float exp2_approx(float x) { return x < -126 ? 0 : exp2f(x); }
inline float rcp_approx(float x) { return 1 / x; }

}  // namespace stagegpt::gpu
