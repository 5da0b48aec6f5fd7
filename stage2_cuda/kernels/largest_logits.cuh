// The k largest of n logits and their indices, largest first, equal ones by index.
//
// A logit and its index are one key of 64 bits, whose order is theirs. Each block takes the k largest keys of
// its logits: k times the largest that is smaller than the one before. The block that finishes last takes the
// k largest of what all have left. For the most probable token k is 1, and logits are read once.
#pragma once

#include <bit>

#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

using LogitKey = unsigned long long;

inline constexpr int kLogitsOfBlock = 2048;
inline constexpr LogitKey kNotFinite = ~LogitKey{0};  // before all others

// Number of keys that blocks leave for the last one.
inline std::int64_t largest_scratch_size(std::int64_t n, std::int64_t k) {
  return parts(n, kLogitsOfBlock) * k;
}

__device__ inline LogitKey logit_key(float logit, std::int64_t index) {
  if (!(fabsf(logit) < INFINITY)) return kNotFinite;
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 becomes +0, which is equal to it
  const std::uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000;
  return LogitKey{ordered} << 32 | (0xffffffff - static_cast<std::uint32_t>(index));
}
__device__ inline float logit_of(LogitKey key) {
  if (key == kNotFinite) return NAN;
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered >> 31 ? ordered & 0x7fffffff : ~ordered);
}
__device__ inline std::int32_t index_of(LogitKey key) {
  return static_cast<std::int32_t>(0xffffffff - static_cast<std::uint32_t>(key));
}

__device__ inline LogitKey warp_largest(LogitKey key) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const LogitKey other = __shfl_xor_sync(kAllLanes, key, distance);
    key = other > key ? other : key;
  }
  return key;
}

// The largest key of the threads of a block, which all call this; every thread gets it.
__device__ inline LogitKey block_largest(LogitKey key) {
  STAGEGPT_SHARED(LogitKey, of_warps, kThreads / kWarp);
  key = warp_largest(key);
  if (lane_index() == 0) of_warps[threadIdx.x / kWarp] = key;
  __syncthreads();
  key = warp_largest(lane_index() < kThreads / kWarp ? of_warps[lane_index()] : LogitKey{0});
  __syncthreads();  // all have read the keys of the warps
  return key;
}

// Called by all threads of a block. Calls emit(i, key), on one thread, with the i-th largest of n keys;
// key_of(j) is the j-th. Where there are less than k different ones, the last keys are 0.
template <class KeyOf, class Emit>
__device__ void take_largest(std::int64_t n, int k, const KeyOf& key_of, const Emit& emit) {
  LogitKey before = 0;
  for (int i = 0; i < k; ++i) {
    LogitKey key = 0;
    for (std::int64_t j = threadIdx.x; j < n; j += kThreads) {
      const LogitKey other = key_of(j);
      if (other > key && (i == 0 || other < before)) key = other;
    }
    before = block_largest(key);
    if (threadIdx.x == 0) emit(i, before);
  }
}

static __global__ void largest_logits_kernel(float* values, std::int32_t* ids, const float* logits,
                                             std::int64_t n, int k, LogitKey* scratch, int* finished) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kLogitsOfBlock, blocks = gridDim.x,
                     own = n - begin < kLogitsOfBlock ? n - begin : kLogitsOfBlock;
  take_largest(
      own, k, [&](std::int64_t j) { return logit_key(logits[begin + j], begin + j); },
      [&](int i, LogitKey key) { scratch[static_cast<std::int64_t>(blockIdx.x) * k + i] = key; });
  if (!is_last_block(finished, blocks)) return;
  take_largest(
      blocks * k, k, [&](std::int64_t j) { return scratch[j]; },
      [&](int i, LogitKey key) {
        values[i] = logit_of(key);
        ids[i] = index_of(key);
      });
}

// `scratch` has largest_scratch_size() elements; `finished` is a zero, which it is again afterwards.
inline void largest_logits(StreamHandle stream, float* values, std::int32_t* ids, const float* logits,
                           std::int64_t n, int k, LogitKey* scratch, int* finished) {
  launch<largest_logits_kernel>(blocks(n, kLogitsOfBlock), dim3(kThreads), 0, stream, values, ids, logits, n,
                                k, scratch, finished);
}

}  // namespace stagegpt::gpu
