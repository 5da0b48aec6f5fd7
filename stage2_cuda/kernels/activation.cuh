// Pointwise non-linearities and their derivatives. One thread per group of V elements: 16 bytes if the
// tensors are aligned.
//   gelu_new: x · σ(2u), u = √(2/π) (x + 0.044715 x³). This equals x · (1 + tanh u)/2, without the
//             cancellation where tanh u is near -1.
//   gelu:     x · Φ(x), Φ(x) = erfc(-x/√2)/2.
//   relu:     max(x, 0).
// Backward: dx = dout · f'(x).
#pragma once

#include <numbers>

#include "common/backend/op_types.h"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// f(x) and f'(x).
struct ActivationValue {
  float value, slope;
};

inline constexpr float kGeluScale = static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
                       kGeluCubic = 0.044715f;

// `sigmoid`: σ(2u).
__device__ inline ActivationValue gelu_new_of(float x, float sigmoid) {
  return {x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid) * kGeluScale * (1 + 3 * kGeluCubic * x * x)};
}

__device__ inline ActivationValue gelu_new(float x) {
  return gelu_new_of(x, 1 / (1 + expf(-kGeluScale * (x + kGeluCubic * x * x * x))));
}

// The same for results that are rounded to bf16, in a third of the instructions.
__device__ inline ActivationValue gelu_new_approx(float x) {
  constexpr float log2_e = static_cast<float>(std::numbers::log2e);
  return gelu_new_of(x, rcp_approx(1 + exp2_approx(-kGeluScale * log2_e * x * (1 + kGeluCubic * x * x))));
}

__device__ inline ActivationValue gelu(float x) {
  constexpr float half_sqrt2 = static_cast<float>(std::numbers::sqrt2 / 2),
                  density_at_0 = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  const float phi = 0.5f * erfcf(-x * half_sqrt2);
  return {x * phi, phi + x * density_at_0 * expf(-x * x / 2)};
}

__device__ inline ActivationValue activate(float x, Activation activation) {
  switch (activation) {
    case Activation::gelu_new:
      return gelu_new(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::relu:
      return {x > 0 ? x : 0, x > 0 ? 1.0f : 0.0f};
    case Activation::none:
      break;
  }
  return {x, 1};
}

// n: the number of groups.
template <class T, int V>
static __global__ void activation_forward_kernel(T* out, const T* x, Activation activation, std::int64_t n) {
  const std::int64_t group = thread_index();
  if (group >= n) return;
  Floats<V> f = load<V>(x, group * V);
  STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f.v[i] = activate(f.v[i], activation).value;
  store<V>(out, group * V, f);
}

template <class T>
void activation_forward(StreamHandle stream, T* out, const T* x, Activation activation, std::int64_t n) {
  constexpr int V = kVector<T>;
  if (in_vectors<V>(n, out, x))
    return launch_elements<activation_forward_kernel<T, V>>(stream, n / V, out, x, activation);
  launch_elements<activation_forward_kernel<T, 1>>(stream, n, out, x, activation);
}

template <class T, int V>
static __global__ void activation_backward_kernel(T* dx, bool accumulate, const T* dout, const T* x,
                                                  Activation activation, std::int64_t n) {
  const std::int64_t group = thread_index();
  if (group >= n) return;
  const Floats<V> f = load<V>(x, group * V), d = load<V>(dout, group * V);
  Floats<V> out = {};
  if (accumulate) out = load<V>(dx, group * V);
  STAGEGPT_UNROLL for (int i = 0; i < V; ++i) out.v[i] += d.v[i] * activate(f.v[i], activation).slope;
  store<V>(dx, group * V, out);
}

// dx may be x or dout.
template <class T>
void activation_backward(StreamHandle stream, T* dx, bool accumulate, const T* dout, const T* x,
                         Activation activation, std::int64_t n) {
  constexpr int V = kVector<T>;
  if (in_vectors<V>(n, dx, dout, x)) {
    return launch_elements<activation_backward_kernel<T, V>>(stream, n / V, dx, accumulate, dout, x,
                                                             activation);
  }
  launch_elements<activation_backward_kernel<T, 1>>(stream, n, dx, accumulate, dout, x, activation);
}

}  // namespace stagegpt::gpu
