// A linear layer on one row (GEMV), or on a few: out[n][o] = Σ_i w[o][i]·x[n][i], w (O,I) in f32, bf16 or
// quantised by rows, sums in f32. It is bound by reading w once: 2·N·O·I FLOP for 4·O·I bytes (f32), 2·O·I
// (bf16) or O·(I + 4) (i8). A row of w is multiplied by all rows of x while it is in the cache; the sums of
// each are those that it has alone.
//
// Groups of rows are divided among threads. A thread reads its rows one after the other, as one stream, which
// the processor fetches ahead. Four rows at a time would load x less often, but four streams of a few KB each
// were read at half the speed (bench/notes/cpu.md). A row has two sums, of the even and the odd vectors.
//
// bf16: a 32-bit word holds two elements; a shift gives the first in f32, a mask the second. To match, x is
// split into its even and its odd elements. i8: integers become floats in registers; the scale of a row
// multiplies its sum.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "common/tensor/quantised_rows.h"
#include "stage0_serial/kernels/linear.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

// Σ_i x[i]·w[i], where load_weights(w + i) loads kLanes elements.
template <class Weight, class Load>
float product(const float* x, const Weight* w, std::int64_t I, const Load& load_weights) {
  FloatVector even = {}, odd = {};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= I; i += 2 * kLanes) {
    even += load(x + i) * load_weights(w + i);
    odd += load(x + i + kLanes) * load_weights(w + i + kLanes);
  }
  float sum = sum_of(even + odd);
  for (; i < I; ++i) sum += x[i] * static_cast<float>(w[i]);
  return sum;
}

// The elements of x (I), which is f32 or bf16: even[i] = x[2i], odd[i] = x[2i + 1].
struct SplitRow {
  template <class T>
  SplitRow(const T* x, std::int64_t I) : even((I + 1) / 2), odd(I / 2) {
    for (std::int64_t i = 0; i < I; ++i)
      (i % 2 == 0 ? even : odd)[static_cast<std::size_t>(i / 2)] = widened(x[i]);
  }
  std::vector<float> even, odd;
};

inline float product(const SplitRow& x, const Bf16* w, std::int64_t I) {
  static_assert(std::endian::native == std::endian::little, "the even element is the lower half of a word");
  FloatVector even = {}, odd = {};
  std::int64_t pair = 0;
  for (; pair + kLanes <= I / 2; pair += kLanes) {
    const WordVector words = load_words(w + 2 * pair);
    even += load(x.even.data() + pair) * std::bit_cast<FloatVector>(words << 16);
    odd += load(x.odd.data() + pair) * std::bit_cast<FloatVector>(words & 0xffff0000u);
  }
  float sum = sum_of(even + odd);
  for (std::int64_t i = 2 * pair; i < I; ++i) {
    sum += (i % 2 == 0 ? x.even : x.odd)[static_cast<std::size_t>(i / 2)] * widened(w[i]);
  }
  return sum;
}

// out[n][o] = element(n, o), on all threads.
template <class Element>
void each_row(const Parallel& parallel, float* out, LinearSize s, const Element& element) {
  constexpr std::int64_t kGroup = 64;
  parallel.ranges(s.O, kGroup, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      for (std::int64_t n = 0; n < s.N; ++n) out[n * s.O + o] = element(n, o);
    }
  });
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const float* w, LinearSize s) {
  each_row(parallel, out, s, [=](std::int64_t n, std::int64_t o) {
    return product(x + n * s.I, w + o * s.I, s.I, [](const float* p) { return load(p); });
  });
}

template <class T>
void matvec(const Parallel& parallel, float* out, const T* x, const Bf16* w, LinearSize s) {
  std::vector<SplitRow> split;
  for (std::int64_t n = 0; n < s.N; ++n) split.emplace_back(x + n * s.I, s.I);
  each_row(parallel, out, s, [&](std::int64_t n, std::int64_t o) {
    return product(split[static_cast<std::size_t>(n)], w + o * s.I, s.I);
  });
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const std::int8_t* w, LinearSize s) {
  each_row(parallel, out, s, [=](std::int64_t n, std::int64_t o) {
    const std::int8_t* row = w + o * quantised_width(s.I);
    return scale_of(row, s.I) * product(x + n * s.I, row, s.I, load_integers);
  });
}

}  // namespace stagegpt::vectorised
