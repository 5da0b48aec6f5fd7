// A matrix in int8: each row has its own scale, w ≈ scale · q. scale = max |w| / 127 over the row, and the
// integers q in [-127, 127] are rounded to nearest, so |w - scale·q| <= scale / 2: absmax quantisation by
// rows, Dettmers et al., arXiv:2208.07339, section 2.1.
//
// In memory a row is its integers, and then its scale in f32, unaligned: a matrix (O,I) is an i8 tensor
// (O,I+4). Then a linear layer reads one stream of memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/tensor/tensor.h"

namespace stagegpt {

inline constexpr std::int64_t kScaleBytes = sizeof(float);

// Bytes of a row of I elements.
constexpr std::int64_t quantised_width(std::int64_t I) { return I + kScaleBytes; }

// The number of columns of a matrix, which may be quantised.
inline std::int64_t columns_of(const Tensor& matrix) {
  return matrix.shape()[1] - (matrix.dtype() == DType::i8 ? kScaleBytes : 0);
}

inline float scale_of(const std::int8_t* row, std::int64_t I) {
  float scale;
  std::memcpy(&scale, row + I, sizeof scale);
  return scale;
}

// in (I) becomes out (I + 4). The scale of a row that is not finite is NaN, and all products with it are.
inline void quantise_row(std::int8_t* out, const float* in, std::int64_t I) {
  float largest = 0;
  for (std::int64_t i = 0; i < I; ++i) largest = std::max(largest, std::abs(in[i]));
  const bool finite = std::all_of(in, in + I, [](float w) { return std::isfinite(w); });
  const float scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = 0; i < I; ++i)
    out[i] = scale > 0 ? static_cast<std::int8_t>(std::lrint(in[i] / scale)) : std::int8_t{0};
  std::memcpy(out + I, &scale, sizeof scale);
}

// The reverse: in (I + 4) becomes out (I).
inline void widen_row(float* out, const std::int8_t* in, std::int64_t I) {
  const float scale = scale_of(in, I);
  for (std::int64_t i = 0; i < I; ++i) out[i] = scale * static_cast<float>(in[i]);
}

}  // namespace stagegpt
