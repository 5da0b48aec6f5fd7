// Sums (Σ over threads of a value) and maxima over a warp and over a block, in a fixed order. A warp reduces
// by a butterfly of shuffles, which gives every lane the same bits; a block reduces the results of its warps
// the same way. With kLanes, a power of two, each group of so many neighbouring lanes is reduced by itself.
#pragma once

#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

template <int kLanes = kWarp, class T>
__device__ T warp_sum(T value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

template <int kLanes = kWarp>
__device__ float warp_max(float value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// The sum over a block of kSize threads, a multiple of 32; every thread gets it.
template <int kSize, class T>
__device__ T block_sum(T value) {
  STAGEGPT_SHARED(T, sums, kSize / kWarp);
  value = warp_sum(value);
  if (lane_index() == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_sum(lane_index() < kSize / kWarp ? static_cast<T>(sums[lane_index()]) : T(0));
}

// A maximum m and a sum of exponentials Σ exp(x - m), which are reduced together (online softmax).
struct MaxAndSum {
  float max, sum;
};

inline constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// The result for a's elements and those of f: the sum is rescaled once for all of them. Without elements, the
// maximum is -∞ and the sum is 0. A NaN is not seen by the maximum, but makes the sum NaN. exp(x - m) is
// 2^(x·log₂e - m·log₂e): a multiply-add and a power for each element. All have the same error, that of the
// rounded m·log₂e, which is large where m is; the sum is corrected by it.
template <int V>
__device__ MaxAndSum with(MaxAndSum a, Floats<V> f) {
  const float max = fmaxf(a.max, in_pairs(f, [](float x, float y) { return fmaxf(x, y); }));
  const float origin = max == -INFINITY ? 0 : max, shift = origin * kLog2E;
  STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f.v[i] = exp2_approx(fmaf(f.v[i], kLog2E, -shift));
  const float sum =
      a.sum * exp2_approx(fmaf(a.max, kLog2E, -shift)) + in_pairs(f, [](float x, float y) { return x + y; });
  const float error = fmaf(origin, kLog2E, -shift);
  return {max, sum - sum * kLn2 * error};
}

// The results of all lanes together, as above.
__device__ inline MaxAndSum warp_merge(MaxAndSum value) {
  const float max = warp_max(value.max);
  if (max != -INFINITY) value.sum *= expf(value.max - max);
  return {max, warp_sum(value.sum)};
}

template <int kSize>
__device__ MaxAndSum block_merge(MaxAndSum value) {
  STAGEGPT_SHARED(float, maxima, kSize / kWarp);
  STAGEGPT_SHARED(float, sums, kSize / kWarp);
  value = warp_merge(value);
  if (lane_index() == 0) {
    maxima[threadIdx.x / kWarp] = value.max;
    sums[threadIdx.x / kWarp] = value.sum;
  }
  __syncthreads();
  value = {-INFINITY, 0};
  if (lane_index() < kSize / kWarp) value = {maxima[lane_index()], sums[lane_index()]};
  return warp_merge(value);
}

// Called by all threads of `blocks` blocks with the same counter, which is zero: whether this block is the
// last of them. It sees what the others have written to global memory before. The counter is zero again
// afterwards.
__device__ inline bool is_last_block(int* counter, std::int64_t blocks) {
  STAGEGPT_SHARED(int, earlier, 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) earlier[0] = atomicAdd(counter, 1);
  __syncthreads();
  if (earlier[0] + 1 < blocks) return false;
  __threadfence();
  if (threadIdx.x == 0) *counter = 0;
  return true;
}

}  // namespace stagegpt::gpu
