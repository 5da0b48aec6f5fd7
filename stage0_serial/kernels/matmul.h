// GEMM: c[m][n] = Σ_k a[m][k] · b[k][n], or += with `accumulate`. Either operand may be transposed.
//
// --cpu-matmul selects an implementation. Read `naive` (here, the reference), `tiled` (matmul_tiled.h) and
// `packed` (matmul_packed.h, the default) in this order: all compute the same sums, and each is faster than
// the one before. `packed-bf16` is `packed` with factors rounded to bf16; `blas` (matmul_blas.h) calls
// OpenBLAS, for comparison.
#pragma once

#include "stage0_serial/blas/matrix_view.h"

namespace stagegpt {
namespace naive {

// Rows of c are ldc elements apart.
template <class T>
void matmul(T* c, std::int64_t ldc, MatrixView<T> a, MatrixView<T> b, MatmulSize size, bool accumulate) {
  for (std::int64_t m = 0; m < size.m; ++m) {
    for (std::int64_t n = 0; n < size.n; ++n) {
      T sum = 0;
      for (std::int64_t k = 0; k < size.k; ++k) sum += a(m, k) * b(k, n);
      T& out = c[m * ldc + n];
      out = accumulate ? out + sum : sum;
    }
  }
}

}  // namespace naive
}  // namespace stagegpt
