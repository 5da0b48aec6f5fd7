// LayerNorm forward, out = (x - mean)·rstd·w + bias (layernorm.cuh), from the simplest kernel to the fastest:
//   v1  one thread per row;
//   v2  one block per row, sums by a tree in shared memory;
//   v3  one warp per row, sums by shuffles: no barriers and no shared memory (layernorm.cuh, one float);
//   v4  v3 with four floats at a time (layernorm.cuh).
// All are bound by memory: x is read once and out is written once, 8 bytes per element.
#pragma once

#include "stage2_cuda/kernels/layernorm.cuh"

namespace stagegpt::gpu {

// Arguments of all versions: out (N,C), mean (N) and rstd (N), of x (N,C).
struct LayernormCall {
  float *out, *mean, *rstd;
  const float *x, *w, *bias;
  float eps;
  std::int64_t N, C;
};

static __global__ void layernorm_v1_kernel(float* out, float* mean, float* rstd, const float* x,
                                           const float* w, const float* bias, float eps, std::int64_t N,
                                           std::int64_t C) {
  // Accesses are not coalesced (neighbouring threads read C floats apart), and there are only N threads.
  const std::int64_t row = thread_index();
  if (row >= N) return;
  float sum = 0, squares = 0;
  for (std::int64_t c = 0; c < C; ++c) sum += x[row * C + c];
  const float m = sum / static_cast<float>(C);
  for (std::int64_t c = 0; c < C; ++c) squares += (x[row * C + c] - m) * (x[row * C + c] - m);
  const float r = 1 / sqrtf(squares / static_cast<float>(C) + eps);
  for (std::int64_t c = 0; c < C; ++c) out[row * C + c] = (x[row * C + c] - m) * r * w[c] + bias[c];
  mean[row] = m;
  rstd[row] = r;
}

// The sum of all threads' values, by a tree in shared memory.
template <class Shared>
__device__ float tree_sum(Shared& sums, float value) {
  sums[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

static __global__ void layernorm_v2_kernel(float* out, float* mean, float* rstd, const float* x,
                                           const float* w, const float* bias, float eps, std::int64_t C) {
  STAGEGPT_SHARED(float, sums, kThreads);
  STAGEGPT_SHARED(float, squares, kThreads);
  // Accesses are coalesced, but each level of a sum has a barrier.
  const std::int64_t row = blockIdx.x, begin = row * C;
  float own = 0, own_squares = 0;
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads) own += x[begin + c];
  const float m = tree_sum(sums, own) / static_cast<float>(C);
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads)
    own_squares += (x[begin + c] - m) * (x[begin + c] - m);
  const float r = 1 / sqrtf(tree_sum(squares, own_squares) / static_cast<float>(C) + eps);
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads)
    out[begin + c] = (x[begin + c] - m) * r * w[c] + bias[c];
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

inline void layernorm_v1(StreamHandle stream, const LayernormCall& call) {
  constexpr int kFew = 32;  // threads per block: small, so that N rows give more blocks
  launch<layernorm_v1_kernel>(blocks(call.N, kFew), dim3(kFew), 0, stream, call.out, call.mean, call.rstd,
                              call.x, call.w, call.bias, call.eps, call.N, call.C);
}

inline void layernorm_v2(StreamHandle stream, const LayernormCall& call) {
  launch<layernorm_v2_kernel>(blocks(call.N, 1), dim3(kThreads), 0, stream, call.out, call.mean, call.rstd,
                              call.x, call.w, call.bias, call.eps, call.C);
}

// v3 (V = 1) and v4 (V = 4).
template <int V>
void layernorm_warps(StreamHandle stream, const LayernormCall& call) {
  launch<layernorm_forward_kernel<float, V>>(blocks(call.N, kThreads / kWarp), dim3(kThreads), 0, stream,
                                             call.out, static_cast<float*>(nullptr), call.mean, call.rstd,
                                             call.x, static_cast<const float*>(nullptr), call.w, call.bias,
                                             call.eps, call.N, call.C);
}

}  // namespace stagegpt::gpu
