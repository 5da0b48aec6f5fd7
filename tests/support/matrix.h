// Matrices of small integers, which f32 represents exactly with their products and sums: a wrong element of a
// product is then a wrong index, not rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "stage0_serial/blas/matrix_view.h"

namespace stagegpt::test {

// A matrix (rows, columns) in memory, transposed or not, whose lines are `gap` elements longer than they
// need.
struct Matrix {
  Matrix(std::int64_t rows, std::int64_t columns, bool transposed, int gap)
      : length((transposed ? rows : columns) + gap),
        values(static_cast<std::size_t>((transposed ? columns : rows) * length)),
        view(transposed ? MatrixView<float>{values.data(), 1, length} : row_major(values.data(), length)) {}

  // Integers from -4 to 4.
  void fill_with_integers(std::uint32_t seed) {
    for (float& value : values) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int>(seed >> 24) % 9 - 4);
    }
  }

  std::int64_t length;
  std::vector<float> values;
  MatrixView<float> view;
};

}  // namespace stagegpt::test
