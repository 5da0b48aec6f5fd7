// Attention with materialised scores, formulas in attention.cuh: two GEMMs with a softmax between them, one
// sequence at a time; its heads are a batch. A head is HS columns of rows of 3C elements, so that no
// transposed copy is needed. Memory beyond input and output: the scores of one sequence, (NH,T,T); in the
// backward twice.
#pragma once

#include "stage2_cuda/gemm.h"
#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/softmax.cuh"

namespace stagegpt::gpu {

// The matrices of one sequence, batched over heads.
struct AttentionMatrices {
  AttentionMatrices(const float* qkv, AttentionSize size, std::int64_t b)
      : s(size), q(head_columns(qkv + b * s.T * 3 * s.channels(), 3 * s.channels())), k(q), v(q) {
    k.data += s.channels();
    v.data += 2 * s.channels();
  }

  // One matrix per head: HS columns of rows that are `ld` floats apart.
  Matrix head_columns(const float* data, std::int64_t ld) const { return {data, ld, false, s.HS}; }
  Matrix square(const float* data) const { return {data, s.T, false, s.T * s.T}; }

  AttentionSize s;
  Matrix q, k, v;
};

// c (NH,T,T) = scale · a · bᵀ; rows of a and b have HS elements.
inline void multiply_to_square(Gemm& gemm, StreamHandle stream, float* c, Matrix a, Matrix b, float scale,
                               AttentionSize s) {
  gemm.run(Product{.c = c,
                   .ldc = s.T,
                   .stride_c = s.T * s.T,
                   .a = a,
                   .b = transposed(b),
                   .m = s.T,
                   .n = s.T,
                   .k = s.HS,
                   .batch = s.NH,
                   .scale = scale},
           stream);
}

// c = square · b; each head has HS columns of c, whose rows are `ld` floats apart.
inline void multiply_by_square(Gemm& gemm, StreamHandle stream, float* c, std::int64_t ld, Matrix square,
                               Matrix b, bool accumulate, AttentionSize s) {
  gemm.run(Product{.c = c,
                   .ldc = ld,
                   .stride_c = s.HS,
                   .a = square,
                   .b = b,
                   .m = s.T,
                   .n = s.HS,
                   .k = s.T,
                   .batch = s.NH,
                   .accumulate = accumulate},
           stream);
}

// `scores` has s.scores() elements.
inline void materialised_forward(Gemm& gemm, StreamHandle stream, float* out, float* lse, const float* qkv,
                                 const Dropout& dropout, AttentionSize s, float* scores) {
  const dim3 grid = blocks(s.NH * s.T, kThreads / kWarp);
  const DropoutArgument argument(dropout);
  for (std::int64_t b = 0; b < s.B; ++b) {
    const AttentionMatrices x(qkv, s, b);
    multiply_to_square(gemm, stream, scores, x.q, x.k, s.scale, s);
    const SoftmaxRows rows{s.NH, s.T, b * s.NH * s.T};
    by_vector(scores, argument, rows, [&]<int V>() {
      launch<softmax_forward_kernel<V>>(grid, dim3(kThreads), 0, stream, scores, lse + b * s.NH * s.T,
                                        argument, rows);
    });
    multiply_by_square(gemm, stream, out + b * s.T * s.channels(), s.channels(), x.square(scores), x.v, false,
                       s);
  }
}

// `scores` has 2 · s.scores() elements.
inline void materialised_backward(Gemm& gemm, StreamHandle stream, float* dqkv, bool accumulate,
                                  const float* dout, const float* out, const float* lse, const float* qkv,
                                  const Dropout& dropout, AttentionSize s, float* scores) {
  const std::int64_t C = s.channels(), row = 3 * C;
  const dim3 grid = blocks(s.NH * s.T, kThreads / kWarp);
  const DropoutArgument argument(dropout);
  float* dp = scores + s.scores();
  for (std::int64_t b = 0; b < s.B; ++b) {
    const AttentionMatrices x(qkv, s, b);
    const Matrix dy = x.head_columns(dout + b * s.T * C, C);
    multiply_to_square(gemm, stream, scores, x.q, x.k, s.scale, s);
    multiply_to_square(gemm, stream, dp, dy, x.v, 1, s);
    const SoftmaxRows rows{s.NH, s.T, b * s.NH * s.T};
    by_vector(scores, argument, rows, [&]<int V>() {
      launch<softmax_backward_kernel<V>>(grid, dim3(kThreads), 0, stream, scores, dp, lse + b * s.NH * s.T,
                                         out + b * s.T * C, dy.data, s.scale, argument, rows,
                                         HeadRows{s.NH, s.HS});
    });
    float* dq = dqkv + b * s.T * row;
    multiply_by_square(gemm, stream, dq, row, x.square(dp), x.k, accumulate, s);
    multiply_by_square(gemm, stream, dq + C, row, transposed(x.square(dp)), x.q, accumulate, s);
    multiply_by_square(gemm, stream, dq + 2 * C, row, transposed(x.square(scores)), dy, accumulate, s);
  }
}

}  // namespace stagegpt::gpu
