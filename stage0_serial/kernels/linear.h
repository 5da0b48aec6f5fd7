// Linear layer: out (N,O) = x (N,I) · wᵀ + bias, w (O,I).
// Backward: dx = dout · w,  dw = doutᵀ · x,  dbias = Σ_rows dout.
//
// The three matrix products use the GEMM that --cpu-matmul selects (matmul.h). Vectorised: bias and
// activation are one pass over out; for dbias columns are divided among threads, each of which adds all rows
// in order.
#pragma once

#include <cstdint>

#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/grad_out.h"
#include "stage0_serial/kernels/matmul.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

struct LinearSize {
  std::int64_t N, I, O;
};

namespace naive {

template <class T>
void linear_forward(T* out, const T* x, const T* w, const T* bias, LinearSize s) {
  matmul(out, s.O, row_major(x, s.I), row_major(w, s.I).transposed(), {s.N, s.O, s.I}, false);
  if (!bias) return;
  for (std::int64_t n = 0; n < s.N; ++n) {
    for (std::int64_t o = 0; o < s.O; ++o) out[n * s.O + o] += bias[o];
  }
}

// Adds Σ_rows dout to columns [o0, o1) of dbias.
template <class T, class Activation>
void sum_rows(T* dbias, const Activation* dout, std::int64_t N, std::int64_t O, std::int64_t o0,
              std::int64_t o1) {
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t o = o0; o < o1; ++o) dbias[o] += widened(dout[n * O + o]);
  }
}

template <class T>
void linear_backward(GradOut<T> dx, GradOut<T> dw, GradOut<T> dbias, const T* dout, const T* x, const T* w,
                     LinearSize s) {
  const MatrixView<T> d = row_major(dout, s.O);
  if (dx) matmul(dx.data, s.I, d, row_major(w, s.I), {s.N, s.I, s.O}, dx.accumulate);
  if (dw) matmul(dw.data, s.I, d.transposed(), row_major(x, s.I), {s.O, s.I, s.N}, dw.accumulate);
  if (!dbias) return;
  if (!dbias.accumulate) std::fill_n(dbias.data, s.O, T(0));
  sum_rows(dbias.data, dout, s.N, s.O, 0, s.O);
}

}  // namespace naive

namespace vectorised {

// pre += bias and, if `out` is another tensor, out = activation(pre), in one pass; `bias` may be null.
inline void bias_activation(const Parallel& parallel, float* out, float* pre, const float* bias,
                            Activation activation, LinearSize s) {
  if (!bias && out == pre) return;
  parallel.each(s.N, [=](std::int64_t n) {
    float* row = pre + n * s.O;
    if (bias) {
#pragma omp simd
      for (std::int64_t o = 0; o < s.O; ++o) row[o] += bias[o];
    }
    if (out != pre) activate(out + n * s.O, row, activation, 0, s.O);
  });
}

template <class T>
void bias_backward(const Parallel& parallel, GradOut<float> dbias, const T* dout, LinearSize s) {
  if (!dbias) return;
  parallel.shares(s.O, [=](std::int64_t o0, std::int64_t o1) {
    if (!dbias.accumulate) std::fill(dbias.data + o0, dbias.data + o1, 0.0f);
    naive::sum_rows(dbias.data, dout, s.N, s.O, o0, o1);
  });
}

}  // namespace vectorised
}  // namespace stagegpt
