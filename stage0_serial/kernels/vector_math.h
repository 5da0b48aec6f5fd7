// exp() in a form that the compiler vectorises: no branch, no table, no call.
#pragma once

#include <bit>
#include <cstdint>

namespace stagegpt {

// e^x in f32, within 2 units in the last place; below -87 it is at most 2e-38, above 88.3 at least 2e38, NaN
// stays. e^x = 2^n · e^r with n = round(x/ln 2), r = x - n ln 2 in [-ln2/2, ln2/2], and a polynomial for e^r
// (Taylor's to degree 7: the remainder is below 2^-28).
inline float vector_exp(float x) {
  const float clamped = x < -87.0f ? -87.0f : (x > 88.3f ? 88.3f : x);
  constexpr float kRounder = 0x1.8p23f;  // adding and subtracting it rounds to an integer
  const float shifted = clamped * 0x1.715476p0f + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // ln 2 in two parts
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  return p * std::bit_cast<float>(exponent + 0x3f800000u);
}

}  // namespace stagegpt
