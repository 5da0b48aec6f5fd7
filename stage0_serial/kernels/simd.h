// Vectors of floats, as wide as the target processor's registers, through the compiler's vector extension.
//
// Some files are compiled for another processor than the rest of the program. The inline namespace gives
// their functions other names: otherwise the linker would keep one version of each for all.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "stage0_serial/kernels/real.h"

#if defined(__AVX512F__)
#define STAGEGPT_SIMD avx512
#define STAGEGPT_VECTOR_BYTES 64
#define STAGEGPT_VECTOR_REGISTERS 32
#elif defined(__AVX__)
#define STAGEGPT_SIMD avx
#define STAGEGPT_VECTOR_BYTES 32
#define STAGEGPT_VECTOR_REGISTERS 16
#elif defined(__aarch64__)
#if defined(__ARM_FEATURE_BF16)
#define STAGEGPT_SIMD neon_bf16
#else
#define STAGEGPT_SIMD neon
#endif
#define STAGEGPT_VECTOR_BYTES 16
#define STAGEGPT_VECTOR_REGISTERS 32
#else
#define STAGEGPT_SIMD simd128
#define STAGEGPT_VECTOR_BYTES 16
#define STAGEGPT_VECTOR_REGISTERS 16
#endif

// The letter for a vector register in an asm statement.
#if defined(__aarch64__)
#define STAGEGPT_VECTOR_CONSTRAINT "w"
#else
#define STAGEGPT_VECTOR_CONSTRAINT "v"
#endif

namespace stagegpt {
inline namespace STAGEGPT_SIMD {

inline constexpr int kVectorBytes = STAGEGPT_VECTOR_BYTES;
inline constexpr int kVectorRegisters = STAGEGPT_VECTOR_REGISTERS;
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

// Elements of bf16, as floats.
inline FloatVector load(const Bf16* p) {
  using HalfVector = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));
  HalfVector halves;
  std::memcpy(&halves, p, sizeof halves);
  return std::bit_cast<FloatVector>(__builtin_convertvector(halves, WordVector) << 16);
}

// a · b + c, rounded once where the processor can. Written as an expression it would depend on the compiler's
// tuning, file by file, whether the two operations are fused.
inline FloatVector multiply_add(float a, FloatVector b, FloatVector c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
#elif defined(__aarch64__)
  return vfmaq_n_f32(c, b, a);
#else
  return a * b + c;
#endif
}

// Adds groups of four, then the four sums.
inline float sum_of(FloatVector v) {
  using Four = float __attribute__((vector_size(16)));
  Four sum = {};
  for (const Four& four : std::bit_cast<std::array<Four, kLanes / 4>>(v)) sum += four;
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The largest of the four-element groups, lane by lane, then of the four.
inline float max_of(FloatVector v) {
  using Four = float __attribute__((vector_size(16)));
  const auto fours = std::bit_cast<std::array<Four, kLanes / 4>>(v);
  Four largest = fours[0];
  for (const Four& four : fours) largest = four > largest ? four : largest;
  const float a = largest[1] > largest[0] ? largest[1] : largest[0],
              b = largest[3] > largest[2] ? largest[3] : largest[2];
  return b > a ? b : a;
}

// The largest of n ≥ 1 elements. A loop with std::max would take one element at a time: the compiler may not
// change the order in which it meets a NaN. A NaN that is not the first element is ignored.
template <class T>
float max_of(const T* p, std::int64_t n) {
  FloatVector largest = FloatVector{} + widened(p[0]);
  std::int64_t at = 0;
  for (; at + kLanes <= n; at += kLanes) {
    const FloatVector v = load(p + at);
    largest = v > largest ? v : largest;
  }
  float max = max_of(largest);
  for (; at < n; ++at) max = widened(p[at]) > max ? widened(p[at]) : max;
  return max;
}

// Integers of 8 bits, as floats.
inline FloatVector load_integers(const std::int8_t* p) {
  using IntegerVector = std::int32_t __attribute__((vector_size(kVectorBytes)));
  IntegerVector integers;
#if defined(__AVX512F__)
  __m128i bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  // Without its mask, gcc 12 warns of an uninitialised value.
  integers = std::bit_cast<IntegerVector>(_mm512_maskz_cvtepi8_epi32(0xffff, bytes));
#elif defined(__AVX2__)
  std::int64_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  integers = std::bit_cast<IntegerVector>(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes)));
#else
  for (int i = 0; i < kLanes; ++i) integers[i] = p[i];
#endif
  return __builtin_convertvector(integers, FloatVector);
}

inline void store(float* p, FloatVector v) { std::memcpy(p, &v, sizeof v); }

constexpr std::int64_t round_up_to_lanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

}  // namespace STAGEGPT_SIMD
}  // namespace stagegpt
