// Matrix product by hand: a tile of c stays in registers while k runs, so that each load is used many times.
//
// tile_product() is the inner part, for one thread and factors that fit in cache; attention is built on it.
// tiled::matmul() blocks and packs larger factors around it.
#pragma once

#include <cstdint>

#include "stage0_serial/kernels/matmul.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// c (m,n) = a · b, or += with `accumulate`; c and b are row-major with rows of ldc and ldb elements, a is any
// view. For a b that fits in cache.
void tile_product(float* c, std::int64_t ldc, MatrixView<float> a, const float* b, std::int64_t ldb,
                  MatmulSize size, bool accumulate);

namespace tiled {

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate);

}  // namespace tiled
}  // namespace stagegpt
