// Causal self-attention: qkv (B,T,3C), out (B,T,C), lse (B,NH,T). For every sequence and head, with q, k, v
// rows of HS = C/NH numbers inside qkv, and f the dropout factors:
//   p[t][u] = exp(scale·q[t]·k[u] - lse[t]) for u <= t,  out[t] = Σ_u f[t][u]·p[t][u]·v[u].
// Backward:
//   dv[u] = Σ_t f·p·dout[t],  dp[t][u] = dout[t]·v[u],  ds = scale·p·(f·dp - D[t]),  D[t] = dout[t]·out[t],
//   dq[t] = Σ_u ds·k[u],  dk[u] = Σ_t ds·q[t].
// D equals Σ_u p·f·dp (Dao et al., arXiv:2205.14135, appendix B) but is free of the rounding of p, which
// would not cancel where p is near 1.
//
// attention_materialised.cuh writes the scores of a sequence to memory; attention_flash.cuh never does.
#pragma once

#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

struct AttentionSize {
  std::int64_t B, T, NH, HS;
  float scale;  // of the scores; GPT-2's is 1/√HS

  __host__ __device__ std::int64_t channels() const { return NH * HS; }
  std::int64_t scores() const { return NH * T * T; }  // elements, for one sequence
  __host__ __device__ std::int64_t rows() const { return B * NH * T; }
};

}  // namespace stagegpt::gpu
