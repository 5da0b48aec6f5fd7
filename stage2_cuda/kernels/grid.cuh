// How work is divided among blocks and threads.
#pragma once

#include <cstdint>
#include <utility>

#include "stage2_cuda/launch.h"

namespace stagegpt::gpu {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;
inline constexpr int kThreads = 256;  // per block, unless a kernel says otherwise

// Number of parts of `size` that cover n.
constexpr std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// A one-dimensional grid of blocks for n items, `per_block` each.
inline dim3 blocks(std::int64_t n, std::int64_t per_block) {
  return dim3(static_cast<unsigned>(parts(n, per_block)));
}

// Launches a kernel with one thread per element; its last argument is n.
template <auto kernel, class... Args>
void launch_elements(StreamHandle stream, std::int64_t n, Args... args) {
  if (n > 0) launch<kernel>(blocks(n, kThreads), dim3(kThreads), 0, stream, args..., n);
}

// Calls f with n, from 1 to kMost, as a constant.
template <int kMost, class F>
void with_constant(std::int64_t n, const F& f) {
  const auto call = [&]<int... i>(std::integer_sequence<int, i...>) {
    ((n == i + 1 ? f(std::integral_constant<int, i + 1>()) : void()), ...);
  };
  call(std::make_integer_sequence<int, kMost>());
}

// This thread's index in a one-dimensional grid.
__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
// This warp's index in a one-dimensional grid, and this thread's lane.
__device__ inline std::int64_t warp_index() { return thread_index() / kWarp; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x % kWarp); }

}  // namespace stagegpt::gpu
