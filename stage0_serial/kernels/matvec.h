// A linear layer on one row: out[o] = Σ_i w[o][i]·x[i], w (O,I) in f32 or bf16, sums in f32. All of the time
// goes into reading w, once: 2·O·I operations on as many or twice as many bytes.
//
// Four rows of w at a time, so that the sums do not wait for each other; threads on groups of rows. Two
// elements of bf16 are a word, whose halves are their f32 but for a shift and a mask: no element is widened
// on its own, and x is split into its even and its odd elements to match.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "common/tensor/half_floats.h"
#include "stage0_serial/kernels/simd.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

// out (kRows) of as many rows of w.
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

// x (I) as even[i] = x[2i], odd[i] = x[2i + 1].
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
