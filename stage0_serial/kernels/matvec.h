// A linear layer on one row (GEMV), or on a few: out[n][o] = Σ_i w[o][i]·x[n][i], w (O,I) in f32, bf16 or
// quantised by rows, sums in f32. It is bound by reading w once: 2·N·O·I FLOP for 4·O·I bytes (f32), 2·O·I
// (bf16) or O·(I + 4) (i8). Groups of rows of w are multiplied by all rows of x while they are in the cache;
// the sums of each are those that it has alone.
//
// The groups are divided among threads. A thread reads its rows one after the other, as one stream,
// which the processor fetches ahead. Four rows at a time would load x less often, but four streams of a few
// KB each were read at half the speed (bench/notes/cpu.md). Four rows of x at a time share what is loaded of
// w. Each has two sums, of the even and the odd vectors of its products.
//
// bf16: a 32-bit word holds two elements; a shift gives the first in f32, a mask the second. x is put into
// the same order. i8: integers become floats in registers; the scale of a row multiplies its sum.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/tensor/quantised_rows.h"
#include "stage0_serial/kernels/linear.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

inline constexpr std::int64_t kStep = 2 * kLanes;  // elements of a row that are multiplied at once

// The weights of a step.
struct Weights {
  FloatVector first, second;
};

inline Weights weights(const float* w) { return {load(w), load(w + kLanes)}; }
inline Weights weights(const std::int8_t* w) { return {load_integers(w), load_integers(w + kLanes)}; }
inline Weights weights(const Bf16* w) {  // of even indices, and of odd ones
  static_assert(std::endian::native == std::endian::little, "the even element is the lower half of a word");
  const WordVector words = load_words(w);
  return {std::bit_cast<FloatVector>(words << 16), std::bit_cast<FloatVector>(words & 0xffff0000u)};
}

// x (N,I), in f32 or bf16, with the elements of each whole step in the order of weights() in bf16.
template <class T>
std::vector<float> in_order_of_bf16(const T* x, LinearSize s) {
  std::vector<float> ordered(static_cast<std::size_t>(s.N * s.I));
  const std::int64_t whole = s.I / kStep * kStep;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const T* from = x + n * s.I;
    float* to = ordered.data() + n * s.I;
    for (std::int64_t i = 0; i < s.I; ++i) {
      const std::int64_t in_step = i % kStep, step = i - in_step;
      to[i < whole ? step + i % 2 * kLanes + in_step / 2 : i] = widened(from[i]);
    }
  }
  return ordered;
}

// Σ_i x[r][i]·w[i] for kRows rows of x.
template <int kRows, class Weight>
std::array<float, kRows> products(const float* x, const Weight* w, std::int64_t I) {
  std::array<FloatVector, kRows> even = {}, odd = {};
  std::int64_t i = 0;
  for (; i + kStep <= I; i += kStep) {
    const auto [first, second] = weights(w + i);
    for (int r = 0; r < kRows; ++r) {
      even[r] += load(x + r * I + i) * first;
      odd[r] += load(x + r * I + i + kLanes) * second;
    }
  }
  std::array<float, kRows> sums;
  for (int r = 0; r < kRows; ++r) {
    sums[r] = sum_of(even[r] + odd[r]);
    for (std::int64_t k = i; k < I; ++k) sums[r] += x[r * I + k] * widened(w[k]);
  }
  return sums;
}

// out (N,O) = x · wᵀ, on all threads. Rows of w are `width` elements apart.
template <class Weight>
void multiply_rows(const Parallel& parallel, float* out, const float* x, const Weight* w, std::int64_t width,
                   LinearSize s) {
  constexpr std::int64_t kGroup = 16;
  constexpr int kRowsTogether = 4;  // of x
  parallel.ranges(s.O, kGroup, [=](std::int64_t begin, std::int64_t end) {
    const auto multiply = [=]<int kRows>(std::integral_constant<int, kRows>, std::int64_t n) {
      for (std::int64_t o = begin; o < end; ++o) {
        const Weight* row = w + o * width;
        float scale = 1;
        if constexpr (std::is_same_v<Weight, std::int8_t>) scale = scale_of(row, s.I);
        const auto sums = products<kRows>(x + n * s.I, row, s.I);
        for (int r = 0; r < kRows; ++r) out[(n + r) * s.O + o] = scale * sums[r];
      }
    };
    std::int64_t n = 0;
    for (; n + kRowsTogether <= s.N; n += kRowsTogether)
      multiply(std::integral_constant<int, kRowsTogether>(), n);
    for (; n < s.N; ++n) multiply(std::integral_constant<int, 1>(), n);
  });
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const float* w, LinearSize s) {
  multiply_rows(parallel, out, x, w, s.I, s);
}

template <class T>
void matvec(const Parallel& parallel, float* out, const T* x, const Bf16* w, LinearSize s) {
  multiply_rows(parallel, out, in_order_of_bf16(x, s).data(), w, s.I, s);
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const std::int8_t* w, LinearSize s) {
  multiply_rows(parallel, out, x, w, quantised_width(s.I), s);
}

}  // namespace stagegpt::vectorised
