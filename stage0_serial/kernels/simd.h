// Vectors of floats, as wide as the target processor's registers, through the compiler's vector extension.
#pragma once

#include <cstdint>
#include <cstring>

namespace stagegpt {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectorRegisters = 16;
#endif
inline constexpr int kLanes = kVectorBytes / 4;

using FloatVector = float __attribute__((vector_size(kVectorBytes)));

inline FloatVector load(const float* p) {
  FloatVector v;
  std::memcpy(&v, p, sizeof v);  // an unaligned load
  return v;
}

// A vector of as many 32-bit words.
using WordVector = std::uint32_t __attribute__((vector_size(kVectorBytes)));

inline WordVector load_words(const void* p) {
  WordVector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline float sum_of(FloatVector v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

inline void store(float* p, FloatVector v) { std::memcpy(p, &v, sizeof v); }

constexpr std::int64_t round_up_to_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

}  // namespace stagegpt
