// Pointwise non-linearities and their derivatives.
//   gelu_new: x · σ(2u), u = √(2/π) (x + 0.044715 x³). This equals x · (1 + tanh u)/2, without the
//             cancellation where tanh u is near -1.
//   gelu:     x · Φ(x), Φ(x) = erfc(-x/√2)/2.
//   relu:     max(x, 0).
// Backward: dx = dout · f'(x). Every element is independent.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "stage0_serial/kernels/grad_out.h"
#include "stage0_serial/kernels/vector_math.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// f(x) and f'(x).
template <class T>
struct ActivationValue {
  T value, slope;
};

// std::exp, or vector_exp, which the compiler can vectorise. They are types, so that calls are inlined.
struct PlainExp {
  template <class T>
  T operator()(T x) const {
    return std::exp(x);
  }
};
struct VectorExp {
  [[gnu::always_inline]] float operator()(float x) const { return vector_exp(x); }
};

// Always inlined, as vector_exp() is.
template <class T, class Exp>
[[gnu::always_inline]] inline ActivationValue<T> gelu_new(T x, Exp exp) {
  const T k = static_cast<T>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
          c = static_cast<T>(0.044715);
  const T sigmoid = 1 / (1 + exp(-k * (x + c * x * x * x)));
  return {x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid) * k * (1 + 3 * c * x * x)};
}

template <class T>
inline ActivationValue<T> gelu(T x) {
  const T phi = static_cast<T>(0.5) * std::erfc(-x * static_cast<T>(std::numbers::sqrt2 / 2));
  const T density = static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2) * std::exp(-x * x / 2);
  return {x * phi, phi + x * density};
}

template <class T>
inline ActivationValue<T> relu(T x) {
  return {x > 0 ? x : T(0), x > 0 ? T(1) : T(0)};
}

// Calls `use` once with the function of `activation`, so that loops inside `use` contain no switch. All
// but the exact GELU, which calls erfc(), are always inlined: a loop with a call is not vectorised.
template <class T, class Exp, class Use>
void with_activation(Activation activation, Exp exp, const Use& use) {
  switch (activation) {
    case Activation::none:
      return use([](T x) __attribute__((always_inline)) { return ActivationValue<T>{x, T(1)}; });
    case Activation::gelu_new:
      return use([=](T x) __attribute__((always_inline)) { return gelu_new(x, exp); });
    case Activation::gelu:
      return use([](T x) { return gelu(x); });
    case Activation::relu:
      return use([](T x) __attribute__((always_inline)) { return relu(x); });
  }
}

namespace naive {

template <class T>
void activation_forward(T* out, const T* x, Activation activation, std::int64_t n) {
  with_activation<T>(activation, PlainExp(), [&](auto f) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(x[i]).value;
  });
}

template <class T>
void activation_backward(GradOut<T> dx, const T* dout, const T* x, Activation activation, std::int64_t n) {
  with_activation<T>(activation, PlainExp(), [&](auto f) {
    for (std::int64_t i = 0; i < n; ++i) dx.put(i, dout[i] * f(x[i]).slope);
  });
}

}  // namespace naive

namespace vectorised {

// out[i] = f(x[i]) on [begin, end); `out` may be `x`.
template <class T>
void activate(T* out, const T* x, Activation activation, std::int64_t begin, std::int64_t end) {
  with_activation<float>(activation, VectorExp(), [&](auto f) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) out[i] = rounded_to<T>(f(widened(x[i])).value);
  });
}

template <class T>
void activation_forward(const Parallel& parallel, T* out, const T* x, Activation activation, std::int64_t n) {
  parallel.ranges(n, kElementGrain,
                  [=](std::int64_t begin, std::int64_t end) { activate(out, x, activation, begin, end); });
}

template <class T>
void activation_backward(const Parallel& parallel, GradOut<T> dx, const T* dout, const T* x,
                         Activation activation, std::int64_t n) {
  if (!dx) return;
  parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
    with_activation<float>(activation, VectorExp(), [&](auto f) {
      if (dx.accumulate) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          dx.data[i] = rounded_to<T>(widened(dx.data[i]) + widened(dout[i]) * f(widened(x[i])).slope);
      } else {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i)
          dx.data[i] = rounded_to<T>(widened(dout[i]) * f(widened(x[i])).slope);
      }
    });
  });
}

}  // namespace vectorised
}  // namespace stagegpt
