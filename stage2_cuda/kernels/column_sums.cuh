// Sums over rows: the gradients of biases and of LayerNorm's weights,
//   dbias[c] = Σ_n dout[n][c],   dw[c] = Σ_n dout[n][c]·x̂[n][c],  x̂ = (x - mean)·rstd.
//
// Two passes, so that many blocks can work on a column while the order of its sum is fixed. First pass: one
// block per 32 columns of kRows rows; warp j adds rows j, j + 8, …, then one warp adds the eight sums. Second
// pass: one thread per column adds the sums of the blocks.
#pragma once

#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

struct ColumnSums {
  static constexpr std::int64_t kRows = 128;  // per block

  // Number of floats between the passes.
  static std::int64_t scratch_size(std::int64_t N, std::int64_t C) { return 2 * parts(N, kRows) * C; }
};

// sums (2, chunks, C): sums of dout, then sums of dout·x̂ if x is not null.
template <class T>
static __global__ void column_sums_kernel(float* sums, const T* dout, const T* x, const float* mean,
                                          const float* rstd, std::int64_t N, std::int64_t C) {
  constexpr int kWarps = kThreads / kWarp;
  STAGEGPT_SHARED(float, plain_sums, kThreads);
  STAGEGPT_SHARED(float, xhat_sums, kThreads);
  const int lane = lane_index(), warp = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane, chunk = blockIdx.y;
  float plain = 0, xhat = 0;
  for (int r = warp; r < ColumnSums::kRows; r += kWarps) {
    const std::int64_t n = chunk * ColumnSums::kRows + r;
    if (n >= N || c >= C) continue;
    const float d = as_float(dout[n * C + c]);
    plain += d;
    if (x) xhat += d * ((as_float(x[n * C + c]) - mean[n]) * rstd[n]);
  }
  plain_sums[threadIdx.x] = plain;
  xhat_sums[threadIdx.x] = xhat;
  __syncthreads();
  if (warp > 0 || c >= C) return;
  for (int w = 1; w < kWarps; ++w) {
    plain += plain_sums[w * kWarp + lane];
    xhat += xhat_sums[w * kWarp + lane];
  }
  sums[chunk * C + c] = plain;
  sums[(gridDim.y + chunk) * C + c] = xhat;
}

// For each column, adds the sums of all chunks, and writes to dbias and dw if they are not null.
static __global__ void add_chunks_kernel(float* dbias, bool accumulate_bias, float* dw, bool accumulate_w,
                                         const float* sums, std::int64_t chunks, std::int64_t C) {
  const std::int64_t c = thread_index();
  if (c >= C) return;
  float plain = 0, xhat = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    plain += sums[chunk * C + c];
    xhat += sums[(chunks + chunk) * C + c];
  }
  if (dbias) put(dbias, c, plain, accumulate_bias);
  if (dw) put(dw, c, xhat, accumulate_w);
}

// Computes dbias and dw; either may be null. dw needs x, mean and rstd. `scratch` has
// ColumnSums::scratch_size elements.
template <class T>
void column_sums(StreamHandle stream, float* dbias, bool accumulate_bias, float* dw, bool accumulate_w,
                 const T* dout, const T* x, const float* mean, const float* rstd, std::int64_t N,
                 std::int64_t C, float* scratch) {
  const std::int64_t chunks = parts(N, ColumnSums::kRows);
  if (chunks > 0) {
    const dim3 grid(static_cast<unsigned>(parts(C, kWarp)), static_cast<unsigned>(chunks));
    launch<column_sums_kernel<T>>(grid, dim3(kThreads), 0, stream, scratch, dout, x, mean, rstd, N, C);
  }
  launch<add_chunks_kernel>(blocks(C, kThreads), dim3(kThreads), 0, stream, dbias, accumulate_bias, dw,
                            accumulate_w, static_cast<const float*>(scratch), chunks, C);
}

}  // namespace stagegpt::gpu
