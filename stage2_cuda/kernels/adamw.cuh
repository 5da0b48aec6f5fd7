// AdamW, with g the gradient scaled by min(1, max_grad_norm/(‖g‖ + 1e-6)) and t the step counted from 1:
//   m ← β₁m + (1-β₁)g,  v ← β₂v + (1-β₂)g²,
//   w ← w - lr·( (m/(1-β₁ᵗ)) / (√(v/(1-β₂ᵗ)) + eps) + weight_decay·w ).
// If the norm is not finite, nothing is changed, so that the host need not wait for the norm.
//
// One launch, one pass over the arenas: 28 bytes per element, 30 with the shadow of the weights in bf16,
// which is written while they are in registers. A block updates kAdamWPart consecutive elements, V at a time
// per thread. It finds the range of the first one by binary search, then follows the table, whose ranges are
// in order.
#pragma once

#include "common/backend/op_types.h"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// The factors that are the same for all elements and all steps.
struct AdamWFactors {
  explicit AdamWFactors(const AdamWStep& s)
      : max_grad_norm(s.max_grad_norm),
        beta1(static_cast<float>(s.beta1)),
        beta2(static_cast<float>(s.beta2)),
        one_minus_beta1(static_cast<float>(1 - s.beta1)),
        one_minus_beta2(static_cast<float>(1 - s.beta2)),
        eps(static_cast<float>(s.eps)) {}

  double max_grad_norm;
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
};

// The factors of one step (AdamWRates).
struct AdamWStepFactors {
  float learning_rate, step_size, inv_sqrt_correction2;

  __device__ explicit AdamWStepFactors(const double* rates)
      : learning_rate(static_cast<float>(rates[0])),
        step_size(static_cast<float>(rates[1])),
        inv_sqrt_correction2(static_cast<float>(rates[2])) {}
};

// The factor that scales gradients of this squared norm. The 1e-6 is the one in PyTorch.
__device__ inline float clip_factor(double max_grad_norm, double squared_norm) {
  if (max_grad_norm <= 0) return 1;
  const double factor = max_grad_norm / (sqrt(squared_norm) + 1e-6);
  return factor < 1 ? static_cast<float>(factor) : 1.0f;
}

// Index of the first range whose end is greater than i; `count` if there is none.
__device__ inline int first_range_behind(const DecayRange* ranges, int count, std::int64_t i) {
  int begin = 0, end = count;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (ranges[middle].end <= i) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Updates elements i … i + V - 1. `shadow` is null if there is none.
template <int V>
__device__ void adamw_elements(float* w, Bf16* shadow, float* m, float* v, const float* g, float scale,
                               double weight_decay, const AdamWFactors& f, const AdamWStepFactors& step,
                               std::int64_t i) {
  const float keep = 1 - step.learning_rate * static_cast<float>(weight_decay);
  const Floats<V> grads = load<V>(g, i);
  Floats<V> weights = load<V>(w, i), first = load<V>(m, i), second = load<V>(v, i);
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) {
    const float grad = grads.v[j] * scale;
    first.v[j] = f.beta1 * first.v[j] + f.one_minus_beta1 * grad;
    second.v[j] = f.beta2 * second.v[j] + f.one_minus_beta2 * grad * grad;
    weights.v[j] = keep * weights.v[j] -
                   step.step_size * first.v[j] / (sqrtf(second.v[j]) * step.inv_sqrt_correction2 + f.eps);
  }
  store<V>(m, i, first);
  store<V>(v, i, second);
  store<V>(w, i, weights);
  if (shadow != nullptr) store<V>(shadow, i, weights);
}

inline constexpr std::int64_t kAdamWPart = 4096;  // elements per block

// A group of V elements that is not inside one range is updated element by element.
template <int V>
static __global__ void adamw_kernel(float* w, Bf16* shadow, float* m, float* v, const float* g,
                                    const double* squared_norm, const double* rates, const DecayRange* ranges,
                                    int count, AdamWFactors f, std::int64_t n) {
  if (!isfinite(*squared_norm)) return;
  const float scale = clip_factor(f.max_grad_norm, *squared_norm);
  const AdamWStepFactors step(rates);
  const std::int64_t begin = blockIdx.x * kAdamWPart, end = begin + kAdamWPart < n ? begin + kAdamWPart : n;
  int range = first_range_behind(ranges, count, begin);
  for (std::int64_t group = begin + threadIdx.x * V; group < end; group += kThreads * V) {
    while (range < count && ranges[range].end <= group) ++range;
    if (range == count) return;
    if (ranges[range].begin <= group && group + V <= ranges[range].end) {
      adamw_elements<V>(w, shadow, m, v, g, scale, ranges[range].weight_decay, f, step, group);
      continue;
    }
    for (std::int64_t i = group; i < group + V; ++i) {
      while (range < count && ranges[range].end <= i) ++range;
      if (range == count) return;
      if (i >= ranges[range].begin)
        adamw_elements<1>(w, shadow, m, v, g, scale, ranges[range].weight_decay, f, step, i);
    }
  }
}

// `rates` (AdamWRates) and `ranges` are in device memory, the latter in order.
inline void adamw(StreamHandle stream, float* w, Bf16* shadow, float* m, float* v, const float* g,
                  const double* squared_norm, const double* rates, const DecayRange* ranges, int count,
                  const AdamWStep& step, std::int64_t n) {
  if (n == 0 || count == 0) return;
  const auto launch_groups = [&]<int V>(std::integral_constant<int, V>) {
    launch<adamw_kernel<V>>(blocks(n, kAdamWPart), dim3(kThreads), 0, stream, w, shadow, m, v, g,
                            squared_norm, rates, ranges, count, AdamWFactors(step), n);
  };
  if (in_vectors<kVector<float>>(0, w, shadow, m, v, g))
    return launch_groups(std::integral_constant<int, kVector<float>>());
  launch_groups(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
