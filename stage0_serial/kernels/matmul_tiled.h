// GEMM with register tiles: c = a · b, or += with `accumulate`. A tile of c stays in registers during the
// loop over k, so that each loaded value is used many times.
//
// tile_product() is the inner part: one thread, operands that fit in cache. Attention uses it directly.
// tiled::matmul() adds blocking for the cache, packing and threads.
#pragma once

#include <cstdint>

#include "stage0_serial/kernels/matmul.h"
#include "stage0_serial/parallel.h"

namespace stagegpt {

// c (m,n) = a · b, or += with `accumulate`. c and b are row-major, with rows ldc and ldb elements apart; a is
// any view. b should fit in cache.
void tile_product(float* c, std::int64_t ldc, MatrixView<float> a, const float* b, std::int64_t ldb,
                  MatmulSize size, bool accumulate);

namespace tiled {

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate);

}  // namespace tiled
}  // namespace stagegpt
