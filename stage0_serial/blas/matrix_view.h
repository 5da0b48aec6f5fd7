// The operands of a GEMM: their layout in memory, and their extents.
#pragma once

#include <cstdint>

namespace stagegpt {

// Element (row, column) is data[row · row_stride + column · column_stride]. One of the strides is 1.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;

  const T& operator()(std::int64_t row, std::int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
  MatrixView transposed() const { return {data, column_stride, row_stride}; }
};

// A row-major matrix with rows of `columns` elements.
template <class T>
MatrixView<T> row_major(const T* data, std::int64_t columns) {
  return {data, columns, 1};
}

// The extents of c (m,n) = a (m,k) · b (k,n).
struct MatmulSize {
  std::int64_t m, n, k;
};

}  // namespace stagegpt
