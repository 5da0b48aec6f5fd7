// AdamW, with g the gradient scaled by min(1, max_grad_norm/(‖g‖ + 1e-6)) and t the step counted from 1:
//   m ← β₁m + (1-β₁)g,  v ← β₂v + (1-β₂)g²,
//   w ← w - lr·( (m/(1-β₁ᵗ)) / (√(v/(1-β₂ᵗ)) + eps) + weight_decay·w ).
// If the norm is not finite, nothing is changed.
//
// Squared norm: Σx² of parts of fixed length; the parts are added in order, in f64.
//
// Vectorised: one pass over the arenas, 28 bytes per element, 30 with a shadow in bf16; threads take
// contiguous parts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/backend/op_types.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// The factor that scales gradients of this squared norm. The 1e-6 is the one in PyTorch, with whose results
// ours are compared.
inline double clip_factor(double max_grad_norm, double squared_norm) {
  return max_grad_norm > 0 ? std::min(1.0, max_grad_norm / (std::sqrt(squared_norm) + 1e-6)) : 1.0;
}

// The factors of one step, which are the same for all elements.
template <class T>
struct AdamWFactors {
  T grad_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inv_sqrt_correction2, eps,
      learning_rate;

  AdamWFactors(const AdamWStep& s, double squared_norm) : AdamWFactors(s, rates_of(s), squared_norm) {}

 private:
  static AdamWRates rates_of(const AdamWStep& s) {
    if (!s.rates.defined()) return s.host_rates();
    const double* const rates = s.rates.data<double>();
    return {rates[0], rates[1], rates[2]};
  }

  AdamWFactors(const AdamWStep& s, const AdamWRates& rates, double squared_norm)
      : grad_scale(static_cast<T>(clip_factor(s.max_grad_norm, squared_norm))),
        beta1(static_cast<T>(s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        one_minus_beta1(static_cast<T>(1 - s.beta1)),
        one_minus_beta2(static_cast<T>(1 - s.beta2)),
        step_size(static_cast<T>(rates.step_size)),
        inv_sqrt_correction2(static_cast<T>(rates.inv_sqrt_correction2)),
        eps(static_cast<T>(s.eps)),
        learning_rate(static_cast<T>(rates.learning_rate)) {}
};

// Updates elements [begin, end).
template <class T>
void adamw_elements(T* w, T* m, T* v, const T* g, const AdamWFactors<T>& factors, double weight_decay,
                    std::int64_t begin, std::int64_t end) {
  const AdamWFactors<T> f = factors;
  const T keep = 1 - f.learning_rate * static_cast<T>(weight_decay);
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) {
    const T grad = g[i] * f.grad_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * grad;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * grad * grad;
    w[i] = keep * w[i] - f.step_size * m[i] / (std::sqrt(v[i]) * f.inv_sqrt_correction2 + f.eps);
  }
}

// `shadow` is null if there is none.
template <class T>
void adamw(const Parallel& parallel, T* w, Bf16* shadow, T* m, T* v, const T* g, double squared_norm,
           std::span<const DecayRange> ranges, const AdamWStep& step) {
  if (!std::isfinite(squared_norm)) return;
  const AdamWFactors<T> factors(step, squared_norm);
  for (const DecayRange& range : ranges) {
    parallel.ranges(range.end - range.begin, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      begin += range.begin, end += range.begin;
      adamw_elements(w, m, v, g, factors, range.weight_decay, begin, end);
      if (shadow == nullptr) return;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) shadow[i] = rounded_to<Bf16>(static_cast<float>(w[i]));
    });
  }
}

namespace naive {

inline double sum(const double* x, std::int64_t n) { return std::accumulate(x, x + n, 0.0); }

// sums[b] = Σx² of block b, added in more than f64: only the last rounding is left.
template <class T>
void squared_norms(double* sums, const T* x, std::int64_t n, std::int64_t block) {
  for (std::int64_t begin = 0; begin < n; begin += block) {
    long double sum = 0;
    for (std::int64_t i = begin; i < std::min(n, begin + block); ++i)
      sum += static_cast<long double>(x[i]) * x[i];
    sums[begin / block] = static_cast<double>(sum);
  }
}

}  // namespace naive

namespace vectorised {

// Σx² of [begin, end): sums of 256 elements in f32, which are added in f64.
inline double squared_norm_part(const float* x, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kRun = 256;
  double sum = 0;
  for (std::int64_t run = begin; run < end; run += kRun) {
    const std::int64_t run_end = std::min(end, run + kRun);
    float run_sum = 0;
#pragma omp simd reduction(+ : run_sum)
    for (std::int64_t i = run; i < run_end; ++i) run_sum += x[i] * x[i];
    sum += run_sum;
  }
  return sum;
}

// sums[b] = Σx² of block b of kElementGrain elements.
inline void squared_norms(const Parallel& parallel, double* sums, const float* x, std::int64_t n) {
  parallel.ranges(n, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    sums[begin / kElementGrain] = squared_norm_part(x, begin, end);
  });
}

}  // namespace vectorised
}  // namespace stagegpt
