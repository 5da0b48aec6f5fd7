#include "stage0_serial/kernels/matmul_blas.h"

#include "stage0_serial/blas/openblas.h"

namespace stagegpt::blas {

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate) {
  const OpenBlas& blas = OpenBlas::instance();
  blas.set_threads(parallel.threads());
  blas.sgemm(c, ldc, a, b, size, accumulate);
}

void reproducible_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                         MatrixView<float> b, MatmulSize size, bool accumulate) {
  constexpr std::int64_t kPanel = 128;
  const OpenBlas& blas = OpenBlas::instance();
  blas.set_threads(1);
  if (size.m > size.n) {
    parallel.ranges(size.m, kPanel, [&](std::int64_t m0, std::int64_t m1) {
      blas.sgemm(c + m0 * ldc, ldc, {&a(m0, 0), a.row_stride, a.column_stride}, b, {m1 - m0, size.n, size.k},
                 accumulate);
    });
  } else {
    parallel.ranges(size.n, kPanel, [&](std::int64_t n0, std::int64_t n1) {
      blas.sgemm(c + n0, ldc, a, {&b(0, n0), b.row_stride, b.column_stride}, {size.m, n1 - n0, size.k},
                 accumulate);
    });
  }
}

}  // namespace stagegpt::blas
