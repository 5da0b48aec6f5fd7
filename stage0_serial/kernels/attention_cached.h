// Attention of new tokens with a KV cache: for tokens t = first, first + 1, … of a sequence,
//   out[t] = Σ_{u <= t} p[u]·v[u],  p = softmax(scale·q[t]·k[u]),
// with k[u], v[u] in row u of the cache. Keys and values of the new tokens are stored there first.
//
// A work item is one head of one new token. It reads the rows twice: for the scores, then for the sum of
// values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/vector_math.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

struct CachedAttentionSize {
  std::int64_t B, T, NH, HS, P, first;
  double scale;  // of the scores

  std::int64_t channels() const { return NH * HS; }
};

namespace cached {

[[gnu::always_inline]] inline float exponential(float x) { return vector_exp(x); }
inline double exponential(double x) { return std::exp(x); }

template <class T>
void store_rows(T* cache, const T* qkv, CachedAttentionSize s) {
  const std::int64_t C = s.channels();
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t t = 0; t < s.T; ++t) {
      std::copy_n(qkv + (b * s.T + t) * 3 * C + C, 2 * C, cache + (b * s.P + s.first + t) * 2 * C);
    }
  }
}

// out (HS) of one query over `n` keys, which start at k and are `stride` elements apart. The values are C
// elements after their keys.
template <class T>
void attend(T* out, const T* q, const T* k, std::int64_t n, std::int64_t stride, CachedAttentionSize s) {
  using Sum = Computed<T>;
  thread_local std::vector<Sum> p, y;
  p.resize(static_cast<std::size_t>(n));
  const Sum scale = static_cast<Sum>(s.scale);
  for (std::int64_t u = 0; u < n; ++u) {
    Sum score = 0;
#pragma omp simd reduction(+ : score)
    for (std::int64_t i = 0; i < s.HS; ++i) score += widened(q[i]) * widened(k[u * stride + i]);
    p[u] = scale * score;
  }
  const Sum max = *std::max_element(p.begin(), p.end());
  Sum sum = 0;
  Sum* probabilities = p.data();
#pragma omp simd reduction(+ : sum)
  for (std::int64_t u = 0; u < n; ++u) sum += probabilities[u] = exponential(probabilities[u] - max);
  y.assign(static_cast<std::size_t>(s.HS), Sum(0));
  Sum* values = y.data();
  const T* v = k + s.channels();
  for (std::int64_t u = 0; u < n; ++u) {
    const Sum weight = probabilities[u] / sum;
#pragma omp simd
    for (std::int64_t i = 0; i < s.HS; ++i) values[i] += weight * widened(v[u * stride + i]);
  }
  for (std::int64_t i = 0; i < s.HS; ++i) out[i] = rounded_to<T>(values[i]);
}

template <class T>
void attention_forward(const Parallel& parallel, T* out, const T* cache, const T* qkv,
                       CachedAttentionSize s) {
  const std::int64_t C = s.channels(), stride = 2 * C;
  parallel.each(s.B * s.T * s.NH, [=](std::int64_t item) {
    const std::int64_t token = item / s.NH, head = item % s.NH, b = token / s.T, t = token % s.T;
    attend(out + token * C + head * s.HS, qkv + token * 3 * C + head * s.HS,
           cache + b * s.P * stride + head * s.HS, s.first + t + 1, stride, s);
  });
}

}  // namespace cached
}  // namespace stagegpt
