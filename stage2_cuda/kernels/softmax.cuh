// Causal softmax over rows of scores: the step of materialised attention between the two GEMMs. For query t
// of a head, over keys u <= t:
//   m = max_u score[u],  S = Σ_u exp(score[u] - m),  lse = m + log S,
//   p[u] = exp(score[u] - m) / S,  out[u] = f[u]·p[u],  f the dropout factor.
// Backward, given dp[u] = dout[t]·v[u], with p[u] = exp(score[u] - lse), whose lse is rounded:
//   ds[u] = scale·p[u]·(f[u]·dp[u] - D),  D = dout[t]·out[t].
// Elements after key t are set to zero, because the GEMMs read whole rows.
//
// One warp per row; each lane takes every 32nd key, or every 32nd group of V keys if rows are aligned.
// Results overwrite inputs.
#pragma once

#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

// The rows of scores (heads, T, T). The first is row `first` of all (B·NH, T) rows of the op.
struct SoftmaxRows {
  std::int64_t heads, T, first;

  __device__ std::int64_t count() const { return heads * T; }
};

template <int V>
static __global__ void softmax_forward_kernel(float* scores, float* lse, DropoutArgument dropout,
                                              SoftmaxRows rows) {
  const std::int64_t row = warp_index(), T = rows.T, t = row % T;
  if (row >= rows.count()) return;
  float* score = scores + row * T;
  const DropoutMap map = dropout.map();
  MaxAndSum lane = {-INFINITY, 0};
  for (std::int64_t u = lane_index() * V; u <= t; u += kWarp * V) {
    Floats<V> f = load<V>(score, u);
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) {
      if (u + i > t) f.v[i] = -INFINITY;
    }
    lane = with(lane, f);
  }
  const MaxAndSum all = warp_merge(lane);
  for (std::int64_t u = lane_index() * V; u < T; u += kWarp * V) {
    Floats<V> f = {};
    if (u <= t) {
      const Floats<V> factor = dropout_factors<V>(map, (rows.first + row) * T + u);
      f = load<V>(score, u);
      STAGEGPT_UNROLL for (int i = 0; i < V; ++i) {
        const float p = expf(f.v[i] - all.max) / all.sum;
        f.v[i] = u + i <= t ? p * factor.v[i] : 0;
      }
    }
    store<V>(score, u, f);
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
template <int V>
static __global__ void softmax_backward_kernel(float* scores, float* dp, const float* lse, const float* out,
                                               const float* dout, float scale, DropoutArgument dropout,
                                               SoftmaxRows rows, HeadRows values) {
  const std::int64_t row = warp_index(), T = rows.T, t = row % T;
  if (row >= rows.count()) return;
  float* score = scores + row * T;
  const DropoutMap map = dropout.map();
  float* d = dp + row * T;
  const std::int64_t begin = values.begin(row / T, t);
  const float row_lse = lse[row];
  float sum = 0;
  for (std::int64_t i = lane_index(); i < values.HS; i += kWarp) sum += dout[begin + i] * out[begin + i];
  const float D = warp_sum(sum);
  for (std::int64_t u = lane_index() * V; u < T; u += kWarp * V) {
    Floats<V> weight = {}, ds = {};
    if (u <= t) {
      const Floats<V> factor = dropout_factors<V>(map, (rows.first + row) * T + u), f = load<V>(score, u),
                      dweight = load<V>(d, u);
      STAGEGPT_UNROLL for (int i = 0; i < V; ++i) {
        const float p = u + i <= t ? expf(f.v[i] - row_lse) : 0;
        ds.v[i] = u + i <= t ? scale * p * (factor.v[i] * dweight.v[i] - D) : 0;
        weight.v[i] = factor.v[i] * p;
      }
    }
    store<V>(d, u, ds);
    store<V>(score, u, weight);
  }
}

// Calls launch_rows<V>(): with V = 4 if the rows of `scores` are aligned, and their dropout factors to blocks
// of four random numbers.
template <class Launch>
void by_vector(const float* scores, const DropoutArgument& dropout, SoftmaxRows rows,
               const Launch& launch_rows) {
  if (in_vectors<4>(rows.T, scores) && dropout.in_blocks()) return launch_rows.template operator()<4>();
  launch_rows.template operator()<1>();
}

}  // namespace stagegpt::gpu
