// GEMM by OpenBLAS: c = a · b, or += with `accumulate`.
#pragma once

#include "stage0_serial/kernels/matmul.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::blas {

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate);

// Gives the same bits with any number of threads, which OpenBLAS's own threading does not: c is divided into
// panels of fixed size, and one thread computes a panel.
void reproducible_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                         MatrixView<float> b, MatmulSize size, bool accumulate);

}  // namespace stagegpt::blas
