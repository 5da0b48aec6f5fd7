// out = a + b, out = value, and conversions of types, element by element or row by row; threads take
// contiguous parts.
#pragma once

#include <cstdint>

#include "common/tensor/quantised_rows.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {
namespace naive {

template <class T>
void add(T* out, const T* a, const T* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

template <class T>
void fill(T* out, T value, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = value;
}

}  // namespace naive

namespace vectorised {

inline void to_bf16(const Parallel& parallel, Bf16* out, const float* in, std::int64_t n) {
  parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) out[i] = rounded_to<Bf16>(in[i]);
  });
}

inline void widen(const Parallel& parallel, float* out, const Bf16* in, std::int64_t n) {
  parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = widened(in[i]);
  });
}

// out (O,I+4) = in (O,I), quantised by rows.
inline void quantise(const Parallel& parallel, std::int8_t* out, const float* in, std::int64_t O,
                     std::int64_t I) {
  parallel.each(O, [=](std::int64_t o) { quantise_row(out + o * quantised_width(I), in + o * I, I); });
}

// out (rows,I) = w in f32; w is (rows,I) in bf16, or (rows,I+4) quantised.
inline void widen_rows(const Parallel& parallel, float* out, const Bf16* w, std::int64_t rows,
                       std::int64_t I) {
  widen(parallel, out, w, rows * I);
}
inline void widen_rows(const Parallel& parallel, float* out, const std::int8_t* w, std::int64_t rows,
                       std::int64_t I) {
  parallel.each(rows, [=](std::int64_t o) { widen_row(out + o * I, w + o * quantised_width(I), I); });
}

template <class T>
void add(const Parallel& parallel, T* out, const T* a, const T* b, std::int64_t n) {
  parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) out[i] = rounded_to<T>(widened(a[i]) + widened(b[i]));
  });
}

inline void fill(const Parallel& parallel, float* out, float value, std::int64_t n) {
  parallel.ranges(n, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = value;
  });
}

}  // namespace vectorised
}  // namespace stagegpt
