// LayerNorm forward (layernorm.cuh) of rows that have room in the registers of a warp: of at most 1,024
// columns, aligned to 16 bytes. A lane loads all of its columns before it uses any, and memory is read once.
#pragma once

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

inline constexpr int kRegisterThreads = 128, kRegisterGroups = 4;

// A lane has kGroups·8 columns.
template <class T, int kGroups>
static __global__ void __launch_bounds__(kRegisterThreads, (kGroups * sizeof(T) <= 8 ? 8 : 4))
    layernorm_registers_kernel(T* out, T* sum, float* mean, float* rstd, const T* x, const T* residual,
                               const float* w, const float* bias, float eps, std::int64_t N, int C) {
  constexpr int V = kVector<T>, K = kGroups * 8 / V, kStep = kWarp * V;
  const int first = lane_index() * V, columns = C - first;  // from this lane's first column on
  const std::int64_t row = warp_index(), begin = row * C + first;
  if (row >= N) return;
  decltype(load_once(x, 0)) in[K] = {}, added[K] = {};
  const auto load_row = [&](auto& vectors, const T* from) {
    STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
      if (k * kStep < columns) vectors[k] = load_once(from + begin, k * kStep);
    }
  };
  load_row(in, x);
  if (residual) load_row(added, residual);
  Floats<V> f[K];
  float total = 0;
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
    f[k] = floats_of(in[k]);
    if (residual) {
      const Floats<V> r = floats_of(added[k]);
      STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f[k].v[i] = as_float(rounded_to<T>(f[k].v[i] + r.v[i]));
      if (k * kStep < columns) store<V>(sum + begin, k * kStep, f[k]);
    }
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) total += f[k].v[i];
  }
  const float m = warp_sum(total) / static_cast<float>(C);
  float squares = 0;
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
    if (k * kStep >= columns) continue;
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) squares += (f[k].v[i] - m) * (f[k].v[i] - m);
  }
  const float r = 1 / sqrtf(warp_sum(squares) / static_cast<float>(C) + eps);
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
    if (k * kStep >= columns) continue;
    const Floats<V> weight = load<V>(w + first, k * kStep), offset = load<V>(bias + first, k * kStep);
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f[k].v[i] = (f[k].v[i] - m) * r * weight.v[i] + offset.v[i];
    store<V>(out + begin, k * kStep, f[k]);
  }
  if (lane_index() == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// The arguments of layernorm_forward, aligned, with at most kRegisterGroups·256 columns.
template <class T>
void layernorm_in_registers(StreamHandle stream, T* out, T* sum, float* mean, float* rstd, const T* x,
                            const T* residual, const float* w, const float* bias, float eps, std::int64_t N,
                            std::int64_t C) {
  const dim3 grid = blocks(N, kRegisterThreads / kWarp);
  with_constant<kRegisterGroups>(parts(C, 8 * kWarp), [&]<int kGroups>(std::integral_constant<int, kGroups>) {
    launch<layernorm_registers_kernel<T, kGroups>>(grid, dim3(kRegisterThreads), 0, stream, out, sum, mean,
                                                   rstd, x, residual, w, bias, eps, N, static_cast<int>(C));
  });
}

}  // namespace stagegpt::gpu
