// Softmax cross-entropy over the first V of Vp columns of each row of logits:
//   lse = log Σ exp(logits),  loss = mean over rows of (lse - logits[target]).
// Backward: dlogits = dloss/N · (exp(logits - lse) - [column = target]), 0 in the padding; it may overwrite
// the logits.
// Accuracy: a row is correct if its target is the argmax, which is the first of equal logits.
//
// Vectorised: rows are divided among threads; a row is read once for its maximum and once for the sum. The
// mean is computed in row order, in f64. Correct rows are counted with an atomic integer: order does not
// matter.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

#include "stage0_serial/kernels/vector_math.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

struct CrossEntropySize {
  std::int64_t N, V, Vp;
};

// Mean of lse - logits[target].
template <class T>
T mean_loss(const T* lse, const T* logits, const std::int32_t* targets, CrossEntropySize s) {
  double sum = 0;
  for (std::int64_t n = 0; n < s.N; ++n) sum += lse[n] - logits[n * s.Vp + targets[n]];
  return static_cast<T>(sum / static_cast<double>(s.N));
}

namespace naive {

template <class T>
void cross_entropy_forward(T* loss, T* lse, const T* logits, const std::int32_t* targets,
                           CrossEntropySize s) {
  for (std::int64_t n = 0; n < s.N; ++n) {
    const T* row = logits + n * s.Vp;
    const T max = *std::max_element(row, row + s.V);
    T sum = 0;
    for (std::int64_t v = 0; v < s.V; ++v) sum += std::exp(row[v] - max);
    lse[n] = max + std::log(sum);
  }
  *loss = mean_loss(lse, logits, targets, s);
}

template <class T>
void cross_entropy_backward(T* dlogits, T dloss, const T* logits, const T* lse, const std::int32_t* targets,
                            CrossEntropySize s) {
  const T scale = dloss / static_cast<T>(s.N);
  for (std::int64_t n = 0; n < s.N; ++n) {
    for (std::int64_t v = 0; v < s.Vp; ++v) {
      const std::int64_t i = n * s.Vp + v;
      dlogits[i] = v < s.V ? scale * (std::exp(logits[i] - lse[n]) - (v == targets[n] ? 1 : 0)) : 0;
    }
  }
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

inline void cross_entropy_forward(const Parallel& parallel, float* loss, float* lse, const float* logits,
                                  const std::int32_t* targets, CrossEntropySize s) {
  parallel.each(s.N, [=](std::int64_t n) {
    const float* row = logits + n * s.Vp;
    float max = row[0], sum = 0;
#pragma omp simd reduction(max : max)
    for (std::int64_t v = 0; v < s.V; ++v) max = std::max(max, row[v]);
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < s.V; ++v) sum += vector_exp(row[v] - max);
    lse[n] = max + std::log(sum);
  });
  *loss = mean_loss(lse, logits, targets, s);
}

inline void cross_entropy_backward(const Parallel& parallel, float* dlogits, float dloss, const float* logits,
                                   const float* lse, const std::int32_t* targets, CrossEntropySize s) {
  const float scale = dloss / static_cast<float>(s.N);
  parallel.each(s.N, [=](std::int64_t n) {
    const float* row = logits + n * s.Vp;
    float* drow = dlogits + n * s.Vp;
    const float row_lse = lse[n];
#pragma omp simd
    for (std::int64_t v = 0; v < s.V; ++v) drow[v] = scale * vector_exp(row[v] - row_lse);
    drow[targets[n]] -= scale;
    std::fill(drow + s.V, drow + s.Vp, 0.0f);
  });
}

inline std::int32_t count_correct(const Parallel& parallel, const float* logits, const std::int32_t* targets,
                                  CrossEntropySize s) {
  std::atomic<std::int32_t> correct = 0;
  parallel.each(s.N, [=, &correct](std::int64_t n) {
    const float* row = logits + n * s.Vp;
    const std::int64_t target = targets[n];
    const float logit = row[target];
    int largest = 1;
#pragma omp simd reduction(& : largest)
    for (std::int64_t v = 0; v < target; ++v) largest &= row[v] < logit;
#pragma omp simd reduction(& : largest)
    for (std::int64_t v = target; v < s.V; ++v) largest &= row[v] <= logit;
    correct += largest;
  });
  return correct;
}

}  // namespace vectorised
}  // namespace stagegpt
