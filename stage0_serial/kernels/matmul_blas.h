// Matrix product by OpenBLAS.
#pragma once

#include "stage0_serial/kernels/matmul.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::blas {

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate);

// The same bits with any number of threads, which the library's own threads do not give: c is cut into panels
// of fixed size, each a product of one thread.
void reproducible_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                         MatrixView<float> b, MatmulSize size, bool accumulate);

}  // namespace stagegpt::blas
