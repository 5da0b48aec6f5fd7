// A linear layer on one row: out[o] = Σ_i w[o][i]·x[i], w (O,I) in f32 or bf16, sums in f32. All of the time
// goes into reading w, once: 2·O·I operations on as many or twice as many bytes.
//
// Four rows of w at a time, so that the sums do not wait for each other; threads on groups of rows.
#pragma once

#include <cstdint>

#include "common/tensor/half_floats.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::vectorised {

template <class Weight>
void four_products(float* out, const float* x, const Weight* w, std::int64_t I) {
  float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
  for (std::int64_t i = 0; i < I; ++i) {
    sum0 += x[i] * as_float(w[i]);
    sum1 += x[i] * as_float(w[I + i]);
    sum2 += x[i] * as_float(w[2 * I + i]);
    sum3 += x[i] * as_float(w[3 * I + i]);
  }
  out[0] = sum0;
  out[1] = sum1;
  out[2] = sum2;
  out[3] = sum3;
}

template <class Weight>
float one_product(const float* x, const Weight* w, std::int64_t I) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < I; ++i) sum += x[i] * as_float(w[i]);
  return sum;
}

template <class Weight>
void matvec(const Parallel& parallel, float* out, const float* x, const Weight* w, std::int64_t O,
            std::int64_t I) {
  constexpr std::int64_t kRows = 64;
  parallel.ranges(O, kRows, [=](std::int64_t begin, std::int64_t end) {
    std::int64_t o = begin;
    for (; o + 4 <= end; o += 4) four_products(out + o, x, w + o * I, I);
    for (; o < end; ++o) out[o] = one_product(x, w + o * I, I);
  });
}

}  // namespace stagegpt::vectorised
