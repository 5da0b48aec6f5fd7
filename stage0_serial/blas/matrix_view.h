// Matrices as products take them: where they lie, and how large they are.
#pragma once

#include <cstdint>

namespace stagegpt {

// A factor: element (row, column) lies at data[row · row_stride + column · column_stride]. One stride is 1.
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

// Extents of a product: c (m,n) = a (m,k) · b (k,n).
struct MatmulSize {
  std::int64_t m, n, k;
};

}  // namespace stagegpt
