// Sums over rows: the gradients of biases and of LayerNorm's weights,
//   dbias[c] = Σ_n dout[n][c],   dw[c] = Σ_n dout[n][c]·x̂[n][c],  x̂ = (x - mean)·rstd.
//
// A block has some rows of 32·V columns, V per thread: warp j adds rows j, j + 8, …, then one thread per
// column adds the eight sums. The block that finishes last among those of its columns adds the sums of all of
// them. So many blocks work on a column, and yet the order of its sum is fixed.
#pragma once

#include <algorithm>

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// How the rows are divided among blocks.
struct ColumnSums {
  static constexpr std::int64_t kMostChunks = 128, kLeastRows = 64;

  std::int64_t rows, chunks;  // of a block; at least one chunk

  explicit ColumnSums(std::int64_t N)
      : rows(std::max(kLeastRows, parts(N, kMostChunks))),
        chunks(std::max<std::int64_t>(1, parts(N, rows))) {}

  // Number of floats that blocks leave for the last one, and an upper bound of the number of counters.
  std::int64_t scratch_size(std::int64_t C) const { return 2 * chunks * C; }
  static std::int64_t counters(std::int64_t C) { return parts(C, kWarp); }
};

// scratch (2, chunks, C): sums of dout, then sums of dout·x̂ if x is not null. dbias and dw may be null.
template <class T, int V>
static __global__ void column_sums_kernel(float* dbias, bool accumulate_bias, float* dw, bool accumulate_w,
                                          const T* dout, const T* x, const float* mean, const float* rstd,
                                          std::int64_t N, std::int64_t C, std::int64_t rows, float* scratch,
                                          int* finished) {
  constexpr int kWarps = kThreads / kWarp, kColumns = kWarp * V;
  STAGEGPT_SHARED(float, plain_sums, kWarps* kColumns);
  STAGEGPT_SHARED(float, xhat_sums, kWarps* kColumns);
  const int place = lane_index() * V, warp = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kColumns, chunk = blockIdx.y,
                     chunks = gridDim.y;
  Floats<V> plain = {}, xhat = {};
  for (std::int64_t n = chunk * rows + warp; n < (chunk + 1) * rows && n < N && begin + place < C;
       n += kWarps) {
    const Floats<V> d = load<V>(dout, n * C + begin + place);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) plain.v[j] += d.v[j];
    if (!x) continue;
    const Floats<V> value = load<V>(x, n * C + begin + place);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) xhat.v[j] += d.v[j] * ((value.v[j] - mean[n]) * rstd[n]);
  }
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) {
    plain_sums[warp * kColumns + place + j] = plain.v[j];
    xhat_sums[warp * kColumns + place + j] = xhat.v[j];
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  const std::int64_t c = begin + column;
  const bool has_column = column < kColumns && c < C;
  if (has_column) {
    float sum = 0, xhat_sum = 0;
    for (int w = 0; w < kWarps; ++w) {
      sum += plain_sums[w * kColumns + column];
      xhat_sum += xhat_sums[w * kColumns + column];
    }
    scratch[chunk * C + c] = sum;
    scratch[(chunks + chunk) * C + c] = xhat_sum;
  }
  if (!is_last_block(finished + blockIdx.x, chunks) || !has_column) return;
  float sum = 0, xhat_sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) {
    sum += scratch[i * C + c];
    xhat_sum += scratch[(chunks + i) * C + c];
  }
  if (dbias) put(dbias, c, sum, accumulate_bias);
  if (dw) put(dw, c, xhat_sum, accumulate_w);
}

// Computes dbias and dw; either may be null. dw needs x, mean and rstd. `scratch` has scratch_size elements,
// `finished` one zero for each counter; it is zero again afterwards.
template <class T>
void column_sums(StreamHandle stream, float* dbias, bool accumulate_bias, float* dw, bool accumulate_w,
                 const T* dout, const T* x, const float* mean, const float* rstd, std::int64_t N,
                 std::int64_t C, float* scratch, int* finished) {
  const ColumnSums division(N);
  const auto launch_sums = [&]<int V>(std::integral_constant<int, V>) {
    const dim3 grid(static_cast<unsigned>(parts(C, kWarp * V)), static_cast<unsigned>(division.chunks));
    launch<column_sums_kernel<T, V>>(grid, dim3(kThreads), 0, stream, dbias, accumulate_bias, dw,
                                     accumulate_w, dout, x, mean, rstd, N, C, division.rows, scratch,
                                     finished);
  };
  if (in_vectors<kVector<T>>(C, dout, x)) return launch_sums(std::integral_constant<int, kVector<T>>());
  launch_sums(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
