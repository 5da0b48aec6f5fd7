// Attention of several new tokens with a KV cache (of one: attention_token.cuh): for tokens t = first,
// first + 1, … of a sequence,
//   out[t] = Σ_{u <= t} p[u]·v[u],  p = softmax(scale·q[t]·k[u]),
// with k[u], v[u] in row u of the cache. Keys and values of the new tokens are stored there first.
//
// One block per head of a new token. It processes the rows kKeys at a time: one thread per key for the
// scores, then one thread per channel for the sum of values, which is rescaled when the maximum score grows
// (online softmax: Milakov and Gimelshein, arXiv:1805.02867). Memory does not grow with the number of rows.
#pragma once

#include "stage2_cuda/kernels/real.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

struct CachedAttentionSize {
  std::int64_t B, T, NH, HS, P, first;
  float scale;  // of the scores

  __host__ __device__ std::int64_t channels() const { return NH * HS; }
};

// Copies keys and values of the new tokens from qkv (B,T,3C) to cache (B,P,2C).
template <class T>
static __global__ void store_rows_kernel(T* cache, const T* qkv, CachedAttentionSize s, std::int64_t n) {
  const std::int64_t i = thread_index(), columns = 2 * s.channels();
  if (i >= n) return;
  const std::int64_t row = i / columns, c = i % columns, b = row / s.T, t = row % s.T;
  cache[(b * s.P + s.first + t) * columns + c] = qkv[row * 3 * s.channels() + s.channels() + c];
}

inline constexpr int kKeys = 128;  // threads per block

template <class T>
static __global__ void cached_attention_kernel(T* out, const T* cache, const T* qkv, CachedAttentionSize s) {
  STAGEGPT_SHARED(float, weights, kKeys);
  STAGEGPT_SHARED(float, maxima, kKeys / kWarp);
  STAGEGPT_DYNAMIC_SHARED(float, sums);  // (HS)
  const std::int64_t C = s.channels(), stride = 2 * C, token = blockIdx.x, head = blockIdx.y;
  const std::int64_t last = s.first + token % s.T;
  const T* q = qkv + token * 3 * C + head * s.HS;
  const T* k = cache + token / s.T * s.P * stride + head * s.HS;
  const T* v = k + C;
  for (std::int64_t i = threadIdx.x; i < s.HS; i += kKeys) sums[i] = 0;
  float max = -INFINITY, denominator = 0;
  for (std::int64_t begin = 0; begin <= last; begin += kKeys) {
    const std::int64_t u = begin + threadIdx.x;
    float score = -INFINITY;
    if (u <= last) {
      score = 0;
      for (std::int64_t i = 0; i < s.HS; ++i) score += as_float(q[i]) * as_float(k[u * stride + i]);
      score *= s.scale;
    }
    const float warp_maximum = warp_max(score);
    if (lane_index() == 0) maxima[threadIdx.x / kWarp] = warp_maximum;
    __syncthreads();
    float new_max = max;
    for (int w = 0; w < kKeys / kWarp; ++w) new_max = fmaxf(new_max, maxima[w]);
    weights[threadIdx.x] = u <= last ? expf(score - new_max) : 0;
    __syncthreads();
    const float rescale = expf(max - new_max);  // 0 for the first keys
    denominator *= rescale;
    for (int j = 0; j < kKeys; ++j) denominator += weights[j];
    const std::int64_t keys = last - begin + 1 < kKeys ? last - begin + 1 : kKeys;
    for (std::int64_t i = threadIdx.x; i < s.HS; i += kKeys) {
      float sum = sums[i] * rescale;
      for (std::int64_t j = 0; j < keys; ++j) sum += weights[j] * as_float(v[(begin + j) * stride + i]);
      sums[i] = sum;
    }
    max = new_max;
  }
  for (std::int64_t i = threadIdx.x; i < s.HS; i += kKeys)
    out[token * C + head * s.HS + i] = rounded_to<T>(sums[i] / denominator);
}

template <class T>
void store_rows(StreamHandle stream, T* cache, const T* qkv, CachedAttentionSize s) {
  launch_elements<store_rows_kernel<T>>(stream, s.B * s.T * 2 * s.channels(), cache, qkv, s);
}

// The rows of the new tokens are in the cache already.
template <class T>
void cached_attention(StreamHandle stream, T* out, const T* cache, const T* qkv, CachedAttentionSize s) {
  if (s.B * s.T == 0) return;
  const dim3 grid(static_cast<unsigned>(s.B * s.T), static_cast<unsigned>(s.NH));
  launch<cached_attention_kernel<T>>(grid, dim3(kKeys), static_cast<std::size_t>(s.HS) * sizeof(float),
                                     stream, out, cache, qkv, s);
}

}  // namespace stagegpt::gpu
