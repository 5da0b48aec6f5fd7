// Conversions between f32 and the two 16-bit formats, bf16 and f16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/tensor/dtype.h"

namespace stagegpt {

// bf16 is the upper half of an f32.
constexpr float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
constexpr std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kInfinity = 0x7f80'0000, kSign = 0x8000'0000, kQuiet = 0x40;
  if ((bits & ~kSign) > kInfinity) return static_cast<std::uint16_t>(bits >> 16 | kQuiet);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// An f32 rounded to the ten bits of fraction that TF32 has: to nearest, ties to even. Infinity and NaN stay.
constexpr float rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kExponent = 0x7f80'0000, kDropped = 0x1fff;
  if ((bits & kExponent) == kExponent) return value;
  return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~kDropped);
}

// Converts an element of either type to f32.
constexpr float as_float(float value) { return value; }
constexpr float as_float(Bf16 value) { return float_of_bf16(value.bits); }

// IEEE 754 binary16: a sign, five bits of exponent, ten of significand.
constexpr float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1f,
                      fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero and the subnormal numbers
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// out[i] = convert(bits of element i). The 16-bit elements need not be aligned.
template <class Convert>
void convert_halves(std::span<const std::byte> in, std::span<float> out, const Convert& convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in.data() + i * sizeof bits, sizeof bits);
    out[i] = convert(bits);
  }
}

}  // namespace stagegpt
