// Causal softmax over rows of scores: the step of materialised attention between the two GEMMs. For query t
// of a head, over keys u <= t:
//   lse = log Σ_u exp(score[u]),  p[u] = exp(score[u] - lse),  out[u] = f[u]·p[u],  f the dropout factor.
// Backward, given dp[u] = dout[t]·v[u]:
//   ds[u] = scale·p[u]·(f[u]·dp[u] - D),  D = dout[t]·out[t].
// Elements after key t are set to zero, because the GEMMs read whole rows.
//
// One warp per row; each lane takes every 32nd key. Results overwrite inputs.
#pragma once

#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

// The rows of scores (heads, T, T). The first is row `first` of all (B·NH, T) rows of the op.
struct SoftmaxRows {
  std::int64_t heads, T, first;

  __device__ std::int64_t count() const { return heads * T; }
};

static __global__ void softmax_forward_kernel(float* scores, float* lse, DropoutMap dropout,
                                              SoftmaxRows rows) {
  const std::int64_t row = warp_index(), T = rows.T, t = row % T;
  if (row >= rows.count()) return;
  float* score = scores + row * T;
  MaxAndSum lane = {-INFINITY, 0};
  for (std::int64_t u = lane_index(); u <= t; u += kWarp) lane = with(lane, score[u]);
  const MaxAndSum all = warp_merge(lane);
  for (std::int64_t u = lane_index(); u < T; u += kWarp) {
    const float p = u <= t ? expf(score[u] - all.max) / all.sum : 0;
    score[u] = u <= t ? p * dropout_factor(dropout, (rows.first + row) * T + u) : 0;
  }
  if (lane_index() == 0) lse[row] = all.max + logf(all.sum);
}

// Layout (T, heads, HS) of the output of attention and of its gradient.
struct HeadRows {
  std::int64_t heads, HS;

  // Offset of row t of a head.
  __device__ std::int64_t begin(std::int64_t head, std::int64_t t) const { return (t * heads + head) * HS; }
};

// Replaces scores by f·p, the weights of the values, and dp by ds.
static __global__ void softmax_backward_kernel(float* scores, float* dp, const float* lse, const float* out,
                                               const float* dout, float scale, DropoutMap dropout,
                                               SoftmaxRows rows, HeadRows values) {
  const std::int64_t row = warp_index(), T = rows.T, t = row % T;
  if (row >= rows.count()) return;
  float* score = scores + row * T;
  float* d = dp + row * T;
  const std::int64_t begin = values.begin(row / T, t);
  const float row_lse = lse[row];
  float sum = 0;
  for (std::int64_t i = lane_index(); i < values.HS; i += kWarp) sum += dout[begin + i] * out[begin + i];
  const float D = warp_sum(sum);
  for (std::int64_t u = lane_index(); u < T; u += kWarp) {
    const float p = u <= t ? expf(score[u] - row_lse) : 0;
    const float f = u <= t ? dropout_factor(dropout, (rows.first + row) * T + u) : 0;
    d[u] = u <= t ? scale * p * (f * d[u] - D) : 0;
    score[u] = f * p;
  }
}

}  // namespace stagegpt::gpu
