// LayerNorm over each row x of C channels:
//   mean = Σx/C,  rstd = 1/√(Σ(x-mean)²/C + eps),  x̂ = (x-mean)·rstd,  out = x̂·w + bias.
// The backward is in layernorm_backward.cuh.
//
// One warp per row. Each lane takes every 32nd element, or every 32nd group of 16 bytes if the row is
// aligned; warps add by shuffles (reduce.cuh). A row is read from memory once, then again from the cache.
// Aligned rows that have room in registers are those of layernorm_registers.cuh.
// Simpler versions of this kernel, starting with one thread per row, are in layernorm_ladder.cuh.
#pragma once

#include "stage2_cuda/kernels/layernorm_registers.cuh"
#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// Normalises x (N,C) or, if `residual` is not null, x + residual, which is written to `sum`.
template <class T, int V>
static __global__ void layernorm_forward_kernel(T* out, T* sum, float* mean, float* rstd, const T* x,
                                                const T* residual, const float* w, const float* bias,
                                                float eps, std::int64_t N, std::int64_t C) {
  const std::int64_t row = warp_index(), begin = row * C;
  if (row >= N) return;
  float total = 0;
  for (std::int64_t c = lane_index() * V; c < C; c += kWarp * V) {
    Floats<V> f = load<V>(x, begin + c);
    if (residual) {
      const Floats<V> r = load<V>(residual, begin + c);
      for (int i = 0; i < V; ++i) f.v[i] = as_float(rounded_to<T>(f.v[i] + r.v[i]));
      store<V>(sum, begin + c, f);
    }
    for (int i = 0; i < V; ++i) total += f.v[i];
  }
  const T* in = residual ? sum : x;
  const float m = warp_sum(total) / static_cast<float>(C);
  float squares = 0;
  for (std::int64_t c = lane_index() * V; c < C; c += kWarp * V) {
    const Floats<V> f = load<V>(in, begin + c);
    for (int i = 0; i < V; ++i) squares += (f.v[i] - m) * (f.v[i] - m);
  }
  const float r = 1 / sqrtf(warp_sum(squares) / static_cast<float>(C) + eps);
  for (std::int64_t c = lane_index() * V; c < C; c += kWarp * V) {
    Floats<V> f = load<V>(in, begin + c);
    const Floats<V> weight = load<V>(w, c), offset = load<V>(bias, c);
    for (int i = 0; i < V; ++i) f.v[i] = (f.v[i] - m) * r * weight.v[i] + offset.v[i];
    store<V>(out, begin + c, f);
  }
  if (lane_index() == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// If `residual` is null, out = layernorm(x) and `sum` is not used.
template <class T>
void layernorm_forward(StreamHandle stream, T* out, T* sum, float* mean, float* rstd, const T* x,
                       const T* residual, const float* w, const float* bias, float eps, std::int64_t N,
                       std::int64_t C) {
  if (N == 0) return;
  const dim3 grid = blocks(N, kThreads / kWarp);
  const bool aligned = in_vectors<kVector<T>>(C, out, sum, x, residual, w, bias);
  if (aligned && C <= kRegisterGroups * 8 * kWarp) {
    layernorm_in_registers(stream, out, sum, mean, rstd, x, residual, w, bias, eps, N, C);
  } else if (aligned) {
    launch<layernorm_forward_kernel<T, kVector<T>>>(grid, dim3(kThreads), 0, stream, out, sum, mean, rstd, x,
                                                    residual, w, bias, eps, N, C);
  } else {
    launch<layernorm_forward_kernel<T, 1>>(grid, dim3(kThreads), 0, stream, out, sum, mean, rstd, x, residual,
                                           w, bias, eps, N, C);
  }
}

}  // namespace stagegpt::gpu
