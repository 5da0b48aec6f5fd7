// Element types of activations: f32 and f64, in which kernels compute, or bf16, with which they compute in
// f32 and round what they write to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

#include "common/tensor/half_floats.h"

namespace stagegpt {

// An element in the type in which a kernel computes.
constexpr float widened(float value) { return value; }
constexpr double widened(double value) { return value; }
constexpr float widened(Bf16 value) { return as_float(value); }
constexpr float widened(std::int8_t value) { return value; }

template <class T>
using Computed = decltype(widened(T()));

// `value` as an element of type T. For bf16 as bf16_of_float(), but without a branch, so that loops are
// vectorised.
template <class T>
[[gnu::always_inline]] constexpr T rounded_to(Computed<T> value) {
  return value;
}
template <>
[[gnu::always_inline]] constexpr Bf16 rounded_to<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), quiet_nan = bits | 0x40'0000;
  return {static_cast<std::uint16_t>((value != value ? quiet_nan : rounded) >> 16)};
}

}  // namespace stagegpt
