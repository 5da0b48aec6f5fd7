// What kernels for compute capability 9.0 share: the threads of a warpgroup, and rings of stages.
#pragma once

#include "stage2_cuda/hopper.h"
#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

inline constexpr int kTileRows = 64, kWarpgroup = 128;

// A position in a ring of kSize stages, and the parity of the phase of its barriers: together in one
// register.
template <int kSize>
class Ring {
 public:
  __device__ int stage() const { return at_ & (kRound - 1); }
  __device__ unsigned parity() const { return static_cast<unsigned>(at_ / kRound); }
  __device__ void next() { at_ = stage() == kSize - 1 ? (at_ & kRound) ^ kRound : at_ + 1; }

 private:
  static constexpr int kRound = 16;

  int at_ = 0;
};

// Registers of a thread in a block of `kWarpgroups` that compute and one that only copies: at launch, and
// after the latter has given up all but a few. Multiples of eight, at most 240.
template <int kWarpgroups>
struct WarpgroupRegisters {
  static constexpr int kFew = 32, kAtLaunch = 65536 / (kWarpgroup * (kWarpgroups + 1)) / 8 * 8;
  static constexpr int kAll = (kAtLaunch * (kWarpgroups + 1) - kFew) / kWarpgroups / 8 * 8;
  static constexpr int kMany = kAll < 240 ? kAll : 240;
};

__device__ inline int warpgroup_index() {
  return static_cast<int>(__shfl_sync(kAllLanes, threadIdx.x / kWarpgroup,
                                      0));  // so that the compiler knows it to be the same in a warp
}
// The first row of this thread's warp in an accumulator; the row and column of element e.
__device__ inline int accumulator_warp_row() { return 16 * static_cast<int>(threadIdx.x / kWarp % 4); }
__device__ inline int accumulator_row(int e) {
  return accumulator_warp_row() + lane_index() / 4 + 8 * (e / 2 % 2);
}
__device__ inline int accumulator_column(int e) { return 8 * (e / 4) + 2 * (lane_index() % 4) + e % 2; }

template <int N>
__device__ void set_zero(AccumulatorOf<N>& c) {
  STAGEGPT_UNROLL for (int e = 0; e < AccumulatorOf<N>::kElements; ++e) c[e] = 0;
}

}  // namespace stagegpt::gpu
