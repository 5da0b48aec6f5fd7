// LayerNorm backward, with d̂ = dout·w and x̂ = (x-mean)·rstd (layernorm.cuh):
//   dx = rstd·(d̂ - Σd̂/C - x̂·Σ(d̂·x̂)/C);  dw = Σ_rows dout·x̂;  dbias = Σ_rows dout.
//
// One pass: dout and x are read once, for dx and for the sums over rows. A warp has a row in registers, and
// adds its columns of dw and dbias over all its rows there. A row of more than 1,024 columns is divided among
// a team of two or four warps, which add Σd̂ and Σ(d̂·x̂) through shared memory. Each block adds the sums of
// its teams and writes them to memory, and column_sums.cuh adds those of all blocks.
// A row that is wider, or not aligned to 16 bytes, is read twice, by a simpler kernel.
#pragma once

#include <algorithm>

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// Number of blocks for N rows: three on each of the 132 multiprocessors of an H100. It is the same on every
// GPU, because the order of the sums depends on it.
inline std::int64_t layernorm_blocks(std::int64_t N) {
  constexpr std::int64_t kMostBlocks = 3 * 132, kLeastRows = 16;
  return std::min(kMostBlocks, parts(N, kLeastRows));
}

inline constexpr int kLayernormWarps = 4;  // of a block

// Adds both numbers over a team of warps; `part` has two elements for each warp of the block. The next call
// needs another part, the call after it may use the same again.
template <class Shared>
__device__ void add_over_team(float (&sums)[2], Shared& part, int first, int team) {
  STAGEGPT_UNROLL for (int i = 0; i < 2; ++i) sums[i] = warp_sum(sums[i]);
  if (team == 1) return;
  const int warp = static_cast<int>(threadIdx.x / kWarp), begin = warp / team * team;
  STAGEGPT_UNROLL for (int i = 0; i < 2; ++i) {
    if (lane_index() == 0) part[first + 2 * warp + i] = sums[i];
    sums[i] = 0;
  }
  __syncthreads();
  for (int w = begin; w < begin + team; ++w) {
    STAGEGPT_UNROLL for (int i = 0; i < 2; ++i) sums[i] += part[first + 2 * w + i];
  }
}

// Adds a lane's columns of a row: d̂ and d̂·x̂ to sums, dout·x̂ to dw, dout to dbias.
template <int V, int K, class Vector>
__device__ void add_row(float (&sums)[2], Floats<V> (&dw)[K], Floats<V> (&dbias)[K], const Vector (&dout)[K],
                        const Vector (&x)[K], const Floats<V> (&w)[K], float mean, float rstd) {
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
    const Floats<V> d = floats_of(dout[k]), in = floats_of(x[k]);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) {
      const float dhat = d.v[j] * w[k].v[j], xhat = (in.v[j] - mean) * rstd;
      sums[0] += dhat;
      sums[1] += dhat * xhat;
      dw[k].v[j] += d.v[j] * xhat;
      dbias[k].v[j] += d.v[j];
    }
  }
}

// out[c] = the sum of column c over the block's teams, in their order; the columns of lanes are `own`.
template <int V, int K, class Shared>
__device__ void write_block_sums(float* out, const Floats<V> (&own)[K], Shared& part, int C, int team) {
  constexpr int kColumns = K * V * kWarp;  // of a warp
  const int begin = static_cast<int>(threadIdx.x / kWarp) * kColumns + lane_index() * V;
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) store_floats(part, begin + k * kWarp * V, own[k]);
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < C; c += kLayernormWarps * kWarp) {
    float sum = 0;
    for (int i = c; i < kLayernormWarps * kColumns; i += team * kColumns) sum += part[i];
    out[c] = sum;
  }
}

// Blocks of a multiprocessor, for which a lane's numbers have room in registers: of each column w, dw, dbias,
// dout, x and the old dx.
template <class T, int kGroups>
inline constexpr int kLayernormBlocks = kGroups*(24 + 6 * sizeof(T)) <= 128 ? 3 : 2;

// A lane has kGroups·8 columns. block_sums (blocks,2C): dbias, then dw of a block's rows; not computed if it
// is null. dx may be null, or dout.
template <class T, int kGroups>
static __global__ void __launch_bounds__(kLayernormWarps* kWarp, (kLayernormBlocks<T, kGroups>))
    layernorm_backward_kernel(T* dx, bool accumulate, float* block_sums, const T* dout, const T* x,
                              const float* w, const float* mean, const float* rstd, std::int64_t N, int C,
                              int team) {
  constexpr int V = kVector<T>, K = kGroups * 8 / V, kColumns = kGroups * 8 * kWarp;
  STAGEGPT_SHARED(float, part, kLayernormWarps* kColumns);
  STAGEGPT_SHARED(float, row_sums, 4 * kLayernormWarps);
  const int warp = static_cast<int>(threadIdx.x / kWarp), teams = kLayernormWarps / team,
            own = warp % team * kColumns + lane_index() * V;
  const float inverse = 1 / static_cast<float>(C);
  Floats<V> weight[K] = {}, dw[K] = {}, dbias[K] = {};
  STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
    if (own + k * kWarp * V < C) weight[k] = load<V>(w + own, k * kWarp * V);
  }
  int first = 0;
  for (std::int64_t begin = std::int64_t{blockIdx.x} * teams; begin < N;
       begin += std::int64_t{gridDim.x} * teams, first = 2 * kLayernormWarps - first) {
    const std::int64_t n = begin + warp / team;
    const int columns = n < N ? C : 0;
    decltype(load_once(x, 0)) d[K] = {}, in[K] = {}, old[K] = {};
    const auto load_row = [&](auto& row, const T* from, int end) {
      STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
        if (own + k * kWarp * V < end) row[k] = load_once(from + n * C + own, k * kWarp * V);
      }
    };
    load_row(d, dout, columns);
    load_row(in, x, columns);
    load_row(old, dx, accumulate ? columns : 0);
    const float m = n < N ? mean[n] : 0, r = n < N ? rstd[n] : 0;
    float sums[2] = {};
    add_row(sums, dw, dbias, d, in, weight, m, r);
    if (!dx) continue;
    add_over_team(sums, row_sums, first, team);
    const float a = sums[0] * inverse, b = sums[1] * inverse;
    STAGEGPT_UNROLL for (int k = 0; k < K; ++k) {
      if (own + k * kWarp * V >= columns) continue;
      const Floats<V> df = floats_of(d[k]), xf = floats_of(in[k]);
      Floats<V> out = floats_of(old[k]);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) out.v[j] +=
          r * (df.v[j] * weight[k].v[j] - a - (xf.v[j] - m) * r * b);
      store<V>(dx + n * C + own, k * kWarp * V, out);
    }
  }
  if (!block_sums) return;
  float* const sums = block_sums + std::int64_t{blockIdx.x} * 2 * C;
  write_block_sums(sums, dbias, part, C, team);
  __syncthreads();
  write_block_sums(sums + C, dw, part, C, team);
}

// The backward for rows of any length, one at a time by a block. The sums over rows are added up in
// block_sums.
template <class T>
static __global__ void layernorm_backward_wide_kernel(T* dx, bool accumulate, float* block_sums,
                                                      const T* dout, const T* x, const float* w,
                                                      const float* mean, const float* rstd, std::int64_t N,
                                                      std::int64_t C) {
  constexpr int kWarps = kThreads / kWarp;
  STAGEGPT_SHARED(float, part, 4 * kWarps);
  const std::int64_t dbias = blockIdx.x * 2 * C, dw = dbias + C;
  int first = 0;
  for (std::int64_t n = blockIdx.x; n < N; n += gridDim.x, first = 2 * kWarps - first) {
    const bool add = n >= gridDim.x;
    const float m = mean[n], r = rstd[n];
    float sums[2] = {};
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
      const float d = as_float(dout[n * C + c]), xhat = (as_float(x[n * C + c]) - m) * r;
      sums[0] += d * w[c];
      sums[1] += d * w[c] * xhat;
      if (!block_sums) continue;
      put(block_sums, dbias + c, d, add);
      put(block_sums, dw + c, d * xhat, add);
    }
    if (!dx) continue;
    add_over_team(sums, part, first, kWarps);
    const float a = sums[0] / static_cast<float>(C), b = sums[1] / static_cast<float>(C);
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
      const float d = as_float(dout[n * C + c]), xhat = (as_float(x[n * C + c]) - m) * r;
      put(dx, n * C + c, r * (d * w[c] - a - xhat * b), accumulate);
    }
  }
}

// Computes dx, and the sums of each of layernorm_blocks(N) blocks; either may be null.
template <class T>
void layernorm_backward(StreamHandle stream, T* dx, bool accumulate, float* block_sums, const T* dout,
                        const T* x, const float* w, const float* mean, const float* rstd, std::int64_t N,
                        std::int64_t C) {
  if (N == 0) return;
  constexpr int kMostGroups = 4, kGroup = 8 * kWarp;
  const dim3 grid(static_cast<unsigned>(layernorm_blocks(N)));
  int team = 1;
  while (team < kLayernormWarps && C > team * kMostGroups * kGroup) team *= 2;
  const std::int64_t groups = parts(C, team * kGroup);
  if (groups > kMostGroups || !in_vectors<kVector<T>>(C, dx, dout, x, w)) {
    launch<layernorm_backward_wide_kernel<T>>(grid, dim3(kThreads), 0, stream, dx, accumulate, block_sums,
                                              dout, x, w, mean, rstd, N, C);
    return;
  }
  with_constant<kMostGroups>(groups, [&]<int kGroups>(std::integral_constant<int, kGroups>) {
    launch<layernorm_backward_kernel<T, kGroups>>(grid, dim3(kLayernormWarps * kWarp), 0, stream, dx,
                                                  accumulate, block_sums, dout, x, w, mean, rstd, N,
                                                  static_cast<int>(C), team);
  });
}

}  // namespace stagegpt::gpu
