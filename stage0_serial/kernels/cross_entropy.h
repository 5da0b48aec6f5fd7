// Softmax cross-entropy over the first V of Vp columns of each row of logits:
//   lse = log Σ exp(logits),  loss = mean over rows of (lse - logits[target]).
// Backward: dlogits = dloss/N · (exp(logits - lse) - [column = target]), 0 in the padding; it may overwrite
// the logits.
// The columns may be divided into parts, each with its own lse_r, and with picked_r = logits[target], or 0
// where the target is in another part (V or more). Then, in the order of parts:
//   lse = log Σ_r exp(lse_r),  loss = mean over rows of (lse - Σ_r picked_r).
// Accuracy: a row is correct if its target is the argmax, which is the first of equal logits.
//
// Vectorised: rows are divided among threads; a row is read once for its maximum and once for the sum. The
// mean is computed in row order, in f64. Forward and backward together keep exp(logits - max) in the row of
// the gradient, or in bf16 beside it, and multiply it by dloss/N/Σ; so a row comes from memory once, and is
// then in the cache.
// Correct rows are counted with an atomic integer: order does not matter.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>

#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/scratch.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/kernels/vector_math.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

struct CrossEntropySize {
  std::int64_t N, V, Vp;
};

// logits[target] of a row, or 0 if the target is in another part.
template <class Logit>
auto target_logit(const Logit* row, std::int32_t target, CrossEntropySize s) {
  return target < s.V ? widened(row[target]) : 0;
}

// Mean of lse - logits[target].
template <class T, class Logit>
T mean_loss(const T* lse, const Logit* logits, const std::int32_t* targets, CrossEntropySize s) {
  double sum = 0;
  for (std::int64_t n = 0; n < s.N; ++n) sum += lse[n] - widened(logits[n * s.Vp + targets[n]]);
  return static_cast<T>(sum / static_cast<double>(s.N));
}

// Mean of the losses of rows (N).
template <class T>
T mean(const T* rows, std::int64_t N) {
  double sum = 0;
  for (std::int64_t n = 0; n < N; ++n) sum += rows[n];
  return static_cast<T>(sum / static_cast<double>(N));
}

namespace naive {

template <class T, class Logit>
void pick_targets(T* picked, const Logit* logits, const std::int32_t* targets, CrossEntropySize s) {
  for (std::int64_t n = 0; n < s.N; ++n) picked[n] = target_logit(logits + n * s.Vp, targets[n], s);
}

// parts (R,2,N): lse and picked of each part.
template <class T>
void cross_entropy_of_parts(T* loss, T* lse, const T* parts, std::int64_t R, std::int64_t N) {
  double mean = 0;
  for (std::int64_t n = 0; n < N; ++n) {
    T max = parts[n], sum = 0, picked = 0;
    for (std::int64_t r = 1; r < R; ++r) max = std::max(max, parts[2 * r * N + n]);
    for (std::int64_t r = 0; r < R; ++r) {
      sum += std::exp(parts[2 * r * N + n] - max);
      picked += parts[(2 * r + 1) * N + n];
    }
    lse[n] = max + std::log(sum);
    mean += (lse[n] - picked) / static_cast<double>(N);
  }
  *loss = static_cast<T>(mean);
}

template <class T>
T row_lse(const T* row, CrossEntropySize s) {
  const T max = *std::max_element(row, row + s.V);
  T sum = 0;
  for (std::int64_t v = 0; v < s.V; ++v) sum += std::exp(row[v] - max);
  return max + std::log(sum);
}

// drow may be row.
template <class T>
void row_gradient(T* drow, T scale, const T* row, T lse, std::int32_t target, CrossEntropySize s) {
  for (std::int64_t v = 0; v < s.Vp; ++v)
    drow[v] = v < s.V ? scale * (std::exp(row[v] - lse) - (v == target ? 1 : 0)) : 0;
}

template <class T>
void cross_entropy_forward(T* loss, T* lse, const T* logits, const std::int32_t* targets,
                           CrossEntropySize s) {
  for (std::int64_t n = 0; n < s.N; ++n) lse[n] = row_lse(logits + n * s.Vp, s);
  *loss = mean_loss(lse, logits, targets, s);
}

template <class T>
void cross_entropy_backward(T* dlogits, T dloss, const T* logits, const T* lse, const std::int32_t* targets,
                            CrossEntropySize s) {
  const T scale = dloss / static_cast<T>(s.N);
  for (std::int64_t n = 0; n < s.N; ++n)
    row_gradient(dlogits + n * s.Vp, scale, logits + n * s.Vp, lse[n], targets[n], s);
}

// The losses of single rows are left in rows (N).
template <class T>
void cross_entropy_forward_backward(T* loss, T* dlogits, T* rows, T dloss, const T* logits,
                                    const std::int32_t* targets, CrossEntropySize s) {
  const T scale = dloss / static_cast<T>(s.N);
  for (std::int64_t n = 0; n < s.N; ++n) {
    const T* row = logits + n * s.Vp;
    const T lse = row_lse(row, s);
    rows[n] = lse - row[targets[n]];
    row_gradient(dlogits + n * s.Vp, scale, row, lse, targets[n], s);
  }
  *loss = mean(rows, s.N);
}

template <class T>
std::int32_t count_correct(const T* logits, const std::int32_t* targets, CrossEntropySize s) {
  std::int32_t correct = 0;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const T* row = logits + n * s.Vp;
    bool largest = true;
    for (std::int64_t v = 0; v < s.V; ++v) {
      largest &= v < targets[n] ? row[v] < row[targets[n]] : row[v] <= row[targets[n]];
    }
    correct += largest;
  }
  return correct;
}

}  // namespace naive

namespace vectorised {

template <class T>
void row_lses(const Parallel& parallel, float* lse, const T* logits, CrossEntropySize s) {
  parallel.each(s.N, [=](std::int64_t n) {
    const T* row = logits + n * s.Vp;
    const float max = max_of(row, s.V);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < s.V; ++v) sum += vector_exp(widened(row[v]) - max);
    lse[n] = max + std::log(sum);
  });
}

template <class T>
void cross_entropy_forward(const Parallel& parallel, float* loss, float* lse, const T* logits,
                           const std::int32_t* targets, CrossEntropySize s) {
  row_lses(parallel, lse, logits, s);
  *loss = mean_loss(lse, logits, targets, s);
}

// Makes the gradient at the target of scale·p: scale·p - scale, from what it was before it was rounded.
inline void subtract_target(float& gradient, float /*scaled*/, float scale) { gradient -= scale; }
inline void subtract_target(Bf16& gradient, float scaled, float scale) {
  gradient = rounded_to<Bf16>(scaled - scale);
}

// Turns scale·p into the gradient. `scaled` is scale·p of the target, if it is one of the columns.
template <class T>
void finish_row_gradient(T* drow, float scaled, float scale, std::int32_t target, CrossEntropySize s) {
  if (target < s.V) subtract_target(drow[target], scaled, scale);
  std::fill(drow + s.V, drow + s.Vp, T());
}

// drow (V) = scale·p. Not inlined: in a copy inside its caller, GCC for AVX2 does not vectorise the loop.
template <class T>
[[gnu::noinline]] void scaled_probabilities(T* drow, const T* row, float row_lse, float scale,
                                            std::int64_t V) {
#pragma omp simd
  for (std::int64_t v = 0; v < V; ++v) drow[v] = rounded_to<T>(scale * vector_exp(widened(row[v]) - row_lse));
}

template <class T>
void cross_entropy_backward(const Parallel& parallel, T* dlogits, float dloss, const T* logits,
                            const float* lse, const std::int32_t* targets, CrossEntropySize s) {
  const float scale = dloss / static_cast<float>(s.N);
  parallel.each(s.N, [=](std::int64_t n) {
    const T* row = logits + n * s.Vp;
    T* drow = dlogits + n * s.Vp;
    const float row_lse = lse[n], target = target_logit(row, targets[n], s);
    const float scaled = scale * vector_exp(target - row_lse);
    scaled_probabilities(drow, row, row_lse, scale, s.V);
    finish_row_gradient(drow, scaled, scale, targets[n], s);
  });
}

// Where a row's exponentials are kept in f32: in the row of the gradient, or beside it if that is bf16.
inline float* exponentials_beside(float* drow, std::int64_t /*V*/) { return drow; }
inline float* exponentials_beside(Bf16* /*drow*/, std::int64_t V) {
  thread_local Scratch scratch;
  return scratch.pieces({V})[0];
}

// The losses of single rows are left in rows (N).
template <class T>
void cross_entropy_forward_backward(const Parallel& parallel, float* loss, T* dlogits, float* rows,
                                    float dloss, const T* logits, const std::int32_t* targets,
                                    CrossEntropySize s) {
  const float scale = dloss / static_cast<float>(s.N);
  parallel.each(s.N, [=](std::int64_t n) {
    const T* row = logits + n * s.Vp;
    T* drow = dlogits + n * s.Vp;
    const float max = max_of(row, s.V), target_logit = widened(row[targets[n]]);
    float* const exponentials = exponentials_beside(drow, s.V);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < s.V; ++v) {
      const float e = vector_exp(widened(row[v]) - max);
      exponentials[v] = e;
      sum += e;
    }
    rows[n] = max + std::log(sum) - target_logit;
    const float factor = scale / sum;
    const float scaled = exponentials[targets[n]] * factor;
#pragma omp simd
    for (std::int64_t v = 0; v < s.V; ++v) drow[v] = rounded_to<T>(exponentials[v] * factor);
    finish_row_gradient(drow, scaled, scale, targets[n], s);
  });
  *loss = mean(rows, s.N);
}

template <class T>
std::int32_t count_correct(const Parallel& parallel, const T* logits, const std::int32_t* targets,
                           CrossEntropySize s) {
  std::atomic<std::int32_t> correct = 0;
  parallel.each(s.N, [=, &correct](std::int64_t n) {
    const T* row = logits + n * s.Vp;
    const std::int64_t target = targets[n];
    const float logit = widened(row[target]);
    int largest = 1;
#pragma omp simd reduction(& : largest)
    for (std::int64_t v = 0; v < target; ++v) largest &= widened(row[v]) < logit;
#pragma omp simd reduction(& : largest)
    for (std::int64_t v = target; v < s.V; ++v) largest &= widened(row[v]) <= logit;
    correct += largest;
  });
  return correct;
}

}  // namespace vectorised
}  // namespace stagegpt
