// A linear layer on one row (GEMV): out[o] = Σ_i w[o][i]·x[i], w (O,I) in f32 or bf16, sums in f32. It is
// bound by reading w once: 2·O·I FLOP for 2·O·I bytes (bf16) or 4·O·I bytes (f32).
//
// Groups of rows are divided among threads. Four rows are computed at a time, as four independent sums. A
// 32-bit word holds two bf16 elements; a shift gives the first in f32, a mask the second. To match, x is
// split into its even and its odd elements.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "common/tensor/half_floats.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

// out (kRows): the dot products of x and kRows rows of w.
template <int kRows>
void products(float* out, const float* x, const float* w, std::int64_t I) {
  FloatVector sums[kRows] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= I; i += kLanes) {
    for (int row = 0; row < kRows; ++row) sums[row] += load(x + i) * load(w + row * I + i);
  }
  for (int row = 0; row < kRows; ++row) {
    out[row] = sum_of(sums[row]);
    for (std::int64_t k = i; k < I; ++k) out[row] += x[k] * w[row * I + k];
  }
}

// The elements of x (I): even[i] = x[2i], odd[i] = x[2i + 1].
struct SplitRow {
  SplitRow(const float* x, std::int64_t I) : even((I + 1) / 2), odd(I / 2) {
    for (std::int64_t i = 0; i < I; ++i) (i % 2 == 0 ? even : odd)[static_cast<std::size_t>(i / 2)] = x[i];
  }
  std::vector<float> even, odd;
};

template <int kRows>
void products(float* out, const SplitRow& x, const Bf16* w, std::int64_t I) {
  static_assert(std::endian::native == std::endian::little, "the even element is the lower half of a word");
  FloatVector sums[kRows] = {};
  std::int64_t pair = 0;
  for (; pair + kLanes <= I / 2; pair += kLanes) {
    const FloatVector even = load(x.even.data() + pair), odd = load(x.odd.data() + pair);
    for (int row = 0; row < kRows; ++row) {
      const WordVector words = load_words(w + row * I + 2 * pair);
      sums[row] += even * std::bit_cast<FloatVector>(words << 16);
      sums[row] += odd * std::bit_cast<FloatVector>(words & 0xffff0000u);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    out[row] = sum_of(sums[row]);
    for (std::int64_t k = 2 * pair; k < I; ++k) {
      const std::vector<float>& half = k % 2 == 0 ? x.even : x.odd;
      out[row] += half[static_cast<std::size_t>(k / 2)] * as_float(w[row * I + k]);
    }
  }
}

template <class Row, class Weight>
void each_product(const Parallel& parallel, float* out, const Row& x, const Weight* w, std::int64_t O,
                  std::int64_t I) {
  constexpr std::int64_t kGroup = 64;
  parallel.ranges(O, kGroup, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t o = begin;
    for (; o + 4 <= end; o += 4) products<4>(out + o, x, w + o * I, I);
    for (; o < end; ++o) products<1>(out + o, x, w + o * I, I);
  });
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const float* w, std::int64_t O,
                   std::int64_t I) {
  each_product(parallel, out, x, w, O, I);
}

inline void matvec(const Parallel& parallel, float* out, const float* x, const Bf16* w, std::int64_t O,
                   std::int64_t I) {
  each_product(parallel, out, SplitRow(x, I), w, O, I);
}

}  // namespace stagegpt::vectorised
