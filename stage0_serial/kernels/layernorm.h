// LayerNorm over each row x of C channels:
//   mean = Σx/C,  rstd = 1/√(Σ(x-mean)²/C + eps),  x̂ = (x-mean)·rstd,  out = x̂·w + bias.
// Backward, with d̂ = dout·w:
//   dx = rstd·(d̂ - Σd̂/C - x̂·Σ(d̂·x̂)/C),  dw = Σ_rows dout·x̂,  dbias = Σ_rows dout.
//
// Derived in docs/derivations.md.
//
// Vectorised: rows are divided among threads. For dw and dbias, channels are divided: each thread adds up all
// rows of its channels in order, so that the sums do not depend on the number of threads.
#pragma once

#include <cmath>
#include <cstdint>

#include "stage0_serial/kernels/grad_out.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {
namespace naive {

template <class T>
void layernorm_forward(T* out, T* mean, T* rstd, const T* x, const T* w, const T* bias, double eps,
                       std::int64_t N, std::int64_t C) {
  for (std::int64_t n = 0; n < N; ++n, x += C, out += C) {
    T sum = 0, squares = 0;
    for (std::int64_t c = 0; c < C; ++c) sum += x[c];
    mean[n] = sum / C;
    for (std::int64_t c = 0; c < C; ++c) squares += (x[c] - mean[n]) * (x[c] - mean[n]);
    rstd[n] = 1 / std::sqrt(squares / C + static_cast<T>(eps));
    for (std::int64_t c = 0; c < C; ++c) out[c] = (x[c] - mean[n]) * rstd[n] * w[c] + bias[c];
  }
}

// Adds the gradients of channels [c0, c1) to dw and dbias.
template <class T, class Activation>
void layernorm_backward_parameters(T* dw, T* dbias, const Activation* dout, const Activation* x,
                                   const T* mean, const T* rstd, std::int64_t N, std::int64_t C,
                                   std::int64_t c0, std::int64_t c1) {
  for (std::int64_t n = 0; n < N; ++n, x += C, dout += C) {
    if (dw) {
      for (std::int64_t c = c0; c < c1; ++c)
        dw[c] += widened(dout[c]) * ((widened(x[c]) - mean[n]) * rstd[n]);
    }
    if (dbias) {
      for (std::int64_t c = c0; c < c1; ++c) dbias[c] += widened(dout[c]);
    }
  }
}

template <class T>
void layernorm_backward(GradOut<T> dx, GradOut<T> dw, GradOut<T> dbias, const T* dout, const T* x, const T* w,
                        const T* mean, const T* rstd, std::int64_t N, std::int64_t C) {
  if (dw && !dw.accumulate) std::fill_n(dw.data, C, T(0));
  if (dbias && !dbias.accumulate) std::fill_n(dbias.data, C, T(0));
  layernorm_backward_parameters(dw.data, dbias.data, dout, x, mean, rstd, N, C, 0, C);
  if (!dx) return;
  for (std::int64_t n = 0; n < N; ++n, x += C, dout += C) {
    T sum = 0, sum_xhat = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      sum += dout[c] * w[c];
      sum_xhat += dout[c] * w[c] * ((x[c] - mean[n]) * rstd[n]);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      const T xhat = (x[c] - mean[n]) * rstd[n];
      dx.put(n * C + c, rstd[n] * (dout[c] * w[c] - sum / C - xhat * (sum_xhat / C)));
    }
  }
}

}  // namespace naive

namespace vectorised {

// One row. If `residual` is not null, x + residual is normalised, and written to `sum`. In bf16 the sum is
// rounded first, and the rounded sum is normalised, because the backward reads the rounded one.
template <class T>
void layernorm_row(T* out, T* sum, float& mean, float& rstd, const T* x, const T* residual, const float* w,
                   const float* bias, float eps, std::int64_t C) {
  float total = 0, squares = 0;
  if (residual) {
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < C; ++c) {
      sum[c] = rounded_to<T>(widened(x[c]) + widened(residual[c]));
      total += widened(sum[c]);
    }
    x = sum;
  } else {
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < C; ++c) total += widened(x[c]);
  }
  const float m = total / static_cast<float>(C);
#pragma omp simd reduction(+ : squares)
  for (std::int64_t c = 0; c < C; ++c) squares += (widened(x[c]) - m) * (widened(x[c]) - m);
  const float r = 1 / std::sqrt(squares / static_cast<float>(C) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) out[c] = rounded_to<T>((widened(x[c]) - m) * r * w[c] + bias[c]);
  mean = m;
  rstd = r;
}

// If `residual` is null, out = layernorm(x) and `sum` is not used.
template <class T>
void layernorm_forward(const Parallel& parallel, T* out, T* sum, float* mean, float* rstd, const T* x,
                       const T* residual, const float* w, const float* bias, double eps, std::int64_t N,
                       std::int64_t C) {
  parallel.each(N, [=](std::int64_t n) {
    layernorm_row(out + n * C, residual ? sum + n * C : nullptr, mean[n], rstd[n], x + n * C,
                  residual ? residual + n * C : nullptr, w, bias, static_cast<float>(eps), C);
  });
}

// dx of one row.
template <class T>
void layernorm_backward_row(T* dx, bool accumulate, const T* dout, const T* x, const float* w, float mean,
                            float rstd, std::int64_t C) {
  float sum = 0, sum_xhat = 0;
#pragma omp simd reduction(+ : sum, sum_xhat)
  for (std::int64_t c = 0; c < C; ++c) {
    const float d = widened(dout[c]) * w[c];
    sum += d;
    sum_xhat += d * ((widened(x[c]) - mean) * rstd);
  }
  const float a = sum / static_cast<float>(C), b = sum_xhat / static_cast<float>(C);
  if (!accumulate) std::fill_n(dx, C, T());
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    const float xhat = (widened(x[c]) - mean) * rstd;
    dx[c] = rounded_to<T>(widened(dx[c]) + rstd * (widened(dout[c]) * w[c] - a - xhat * b));
  }
}

template <class T>
void layernorm_backward(const Parallel& parallel, GradOut<T> dx, GradOut<float> dw, GradOut<float> dbias,
                        const T* dout, const T* x, const float* w, const float* mean, const float* rstd,
                        std::int64_t N, std::int64_t C) {
  if (dx) {
    parallel.each(N, [=](std::int64_t n) {
      layernorm_backward_row(dx.data + n * C, dx.accumulate, dout + n * C, x + n * C, w, mean[n], rstd[n], C);
    });
  }
  parallel.shares(C, [=](std::int64_t c0, std::int64_t c1) {
    if (dw && !dw.accumulate) std::fill(dw.data + c0, dw.data + c1, 0.0f);
    if (dbias && !dbias.accumulate) std::fill(dbias.data + c0, dbias.data + c1, 0.0f);
    naive::layernorm_backward_parameters(dw.data, dbias.data, dout, x, mean, rstd, N, C, c0, c1);
  });
}

}  // namespace vectorised
}  // namespace stagegpt
