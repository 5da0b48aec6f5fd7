// LayerNorm backward, with d̂ = dout·w and x̂ = (x-mean)·rstd (layernorm.cuh):
//   dx = rstd·(d̂ - Σd̂/C - x̂·Σ(d̂·x̂)/C);  dw = Σ_rows dout·x̂;  dbias = Σ_rows dout.
//
// One pass: dout and x are read once, for dx and for the sums over rows. A block has some consecutive rows,
// and a thread V neighbouring columns of each. The block takes kRows rows at a time and keeps them in
// registers while it adds Σd̂ and Σ(d̂·x̂) over its threads: by shuffles, then through shared memory. A thread
// adds its columns of dw and dbias over all rows of the block. Each block writes these sums to memory, and
// column_sums.cuh adds the sums of all blocks.
// A row that has too many columns for the threads of a block is read twice, by a simpler kernel.
#pragma once

#include <algorithm>

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// How the rows are divided among blocks.
struct LayernormBlocks {
  static constexpr std::int64_t kMostBlocks = 512, kLeastRows = 16;

  std::int64_t rows, blocks;  // rows of a block

  explicit LayernormBlocks(std::int64_t N)
      : rows(std::max(kLeastRows, parts(N, kMostBlocks))), blocks(parts(N, rows)) {}
};

// Adds each of kCount numbers over the threads of the block, in the same order for every thread; all get the
// sums. Uses kCount elements of `part` for each warp. The next call needs others, the call after it may use
// the same again.
template <int kCount, class Shared>
__device__ void add_over_block(float (&values)[kCount], Shared& part, int first) {
  const int warp = static_cast<int>(threadIdx.x / kWarp), warps = static_cast<int>(blockDim.x / kWarp);
  STAGEGPT_UNROLL for (int i = 0; i < kCount; ++i) {
    values[i] = warp_sum(values[i]);
    if (lane_index() == 0) part[first + warp * kCount + i] = values[i];
    values[i] = 0;
  }
  __syncthreads();
  for (int w = 0; w < warps; ++w) {
    STAGEGPT_UNROLL for (int i = 0; i < kCount; ++i) values[i] += part[first + w * kCount + i];
  }
}

inline constexpr int kLayernormThreads = 512;  // of a block at most

// block_sums (blocks,2C): dbias, then dw of a block's rows; not computed if it is null. dx may be null, or
// dout.
template <class T, int V>
static __global__ void __launch_bounds__(kLayernormThreads)
    layernorm_backward_kernel(T* dx, bool accumulate, float* block_sums, const T* dout, const T* x,
                              const float* w, const float* mean, const float* rstd, std::int64_t N,
                              std::int64_t C, std::int64_t rows) {
  constexpr int kRows = 4, kPart = 2 * kRows * kLayernormThreads / kWarp;
  STAGEGPT_SHARED(float, part, 2 * kPart);
  const std::int64_t c = threadIdx.x * V, begin = blockIdx.x * rows,
                     end = begin + rows < N ? begin + rows : N;
  const bool has_columns = c < C;
  Floats<V> weight = {}, dw = {}, dbias = {};
  if (has_columns) weight = load<V>(w, c);
  int first = 0;
  for (std::int64_t n = begin; n < end; n += kRows, first = kPart - first) {
    Floats<V> d[kRows] = {}, xhat[kRows] = {};
    STAGEGPT_UNROLL for (int i = 0; i < kRows; ++i) {
      if (!has_columns || n + i >= end) continue;
      d[i] = load<V>(dout, (n + i) * C + c);
      xhat[i] = load<V>(x, (n + i) * C + c);
    }
    float r[kRows] = {}, sums[2 * kRows] = {};
    STAGEGPT_UNROLL for (int i = 0; i < kRows; ++i) {
      if (n + i >= end) continue;
      const float m = mean[n + i];
      r[i] = rstd[n + i];
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) {
        xhat[i].v[j] = (xhat[i].v[j] - m) * r[i];
        sums[2 * i] += d[i].v[j] * weight.v[j];
        sums[2 * i + 1] += d[i].v[j] * weight.v[j] * xhat[i].v[j];
        dbias.v[j] += d[i].v[j];
        dw.v[j] += d[i].v[j] * xhat[i].v[j];
      }
    }
    if (!dx) continue;
    add_over_block(sums, part, first);
    STAGEGPT_UNROLL for (int i = 0; i < kRows; ++i) {
      if (!has_columns || n + i >= end) continue;
      const float a = sums[2 * i] / static_cast<float>(C), b = sums[2 * i + 1] / static_cast<float>(C);
      Floats<V> out = {};
      if (accumulate) out = load<V>(dx, (n + i) * C + c);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) out.v[j] +=
          r[i] * (d[i].v[j] * weight.v[j] - a - xhat[i].v[j] * b);
      store<V>(dx, (n + i) * C + c, out);
    }
  }
  if (!block_sums || !has_columns) return;
  store<V>(block_sums, blockIdx.x * 2 * C + c, dbias);
  store<V>(block_sums, (blockIdx.x * 2 + 1) * C + c, dw);
}

// The same for any number of columns, with one row at a time. The sums over rows are added up in block_sums.
template <class T>
static __global__ void layernorm_backward_wide_kernel(T* dx, bool accumulate, float* block_sums,
                                                      const T* dout, const T* x, const float* w,
                                                      const float* mean, const float* rstd, std::int64_t N,
                                                      std::int64_t C, std::int64_t rows) {
  constexpr int kPart = 2 * kThreads / kWarp;
  STAGEGPT_SHARED(float, part, 2 * kPart);
  const std::int64_t begin = blockIdx.x * rows, end = begin + rows < N ? begin + rows : N,
                     dbias = blockIdx.x * 2 * C, dw = dbias + C;
  int first = 0;
  for (std::int64_t n = begin; n < end; ++n, first = kPart - first) {
    const float m = mean[n], r = rstd[n];
    float sums[2] = {};
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
      const float d = as_float(dout[n * C + c]), xhat = (as_float(x[n * C + c]) - m) * r;
      sums[0] += d * w[c];
      sums[1] += d * w[c] * xhat;
      if (!block_sums) continue;
      put(block_sums, dbias + c, d, n > begin);
      put(block_sums, dw + c, d * xhat, n > begin);
    }
    if (!dx) continue;
    add_over_block(sums, part, first);
    const float a = sums[0] / static_cast<float>(C), b = sums[1] / static_cast<float>(C);
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
      const float d = as_float(dout[n * C + c]), xhat = (as_float(x[n * C + c]) - m) * r;
      put(dx, n * C + c, r * (d * w[c] - a - xhat * b), accumulate);
    }
  }
}

// Computes dx, and the sums of each block of LayernormBlocks; either may be null.
template <class T>
void layernorm_backward(StreamHandle stream, T* dx, bool accumulate, float* block_sums, const T* dout,
                        const T* x, const float* w, const float* mean, const float* rstd, std::int64_t N,
                        std::int64_t C) {
  if (N == 0) return;
  const LayernormBlocks division(N);
  const dim3 grid(static_cast<unsigned>(division.blocks));
  const bool aligned = in_vectors<kVector<T>>(C, dx, block_sums, dout, x, w);
  const std::int64_t threads = parts(C, kWarp * (aligned ? kVector<T> : 1)) * kWarp;
  if (threads > kLayernormThreads) {
    launch<layernorm_backward_wide_kernel<T>>(grid, dim3(kThreads), 0, stream, dx, accumulate, block_sums,
                                              dout, x, w, mean, rstd, N, C, division.rows);
  } else if (aligned) {
    launch<layernorm_backward_kernel<T, kVector<T>>>(grid, dim3(static_cast<unsigned>(threads)), 0, stream,
                                                     dx, accumulate, block_sums, dout, x, w, mean, rstd, N, C,
                                                     division.rows);
  } else {
    launch<layernorm_backward_kernel<T, 1>>(grid, dim3(static_cast<unsigned>(threads)), 0, stream, dx,
                                            accumulate, block_sums, dout, x, w, mean, rstd, N, C,
                                            division.rows);
  }
}

}  // namespace stagegpt::gpu
