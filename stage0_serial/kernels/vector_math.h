// exp() in a form that the compiler can vectorise: no branch, no table, no call.
#pragma once

#include <bit>
#include <cstdint>

namespace stagegpt {

// e^x in f32, with an error of at most 2 ULP. For x < -87 the result is at most 2e-38, for x > 88.3 at least
// 2e38, for NaN it is NaN. e^x = 2^n · e^r with n = round(x/ln 2), r = x - n ln 2 in [-ln2/2, ln2/2]; e^r is
// its Taylor polynomial of degree 7 (remainder below 2^-28).
//
// Always inlined: a loop that calls a function is not vectorised, and in a large file the compiler stops
// inlining.
[[gnu::always_inline]] inline float vector_exp(float x) {
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
