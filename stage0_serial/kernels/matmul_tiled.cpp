#include "stage0_serial/kernels/matmul_tiled.h"

#include <algorithm>
#include <vector>

#include "stage0_serial/kernels/simd.h"

namespace stagegpt {
namespace {

// A register tile is kTileRows × 2 vectors of c. The remaining registers hold a row of b and an element of a.
constexpr int kTileRows = kVectorRegisters == 32 ? 12 : 6;
constexpr int kTileColumns = 2 * kLanes;

// c (kRows, kVectors·kLanes) = the sum of k outer products, each of a column of a and a row of b.
template <int kRows, int kVectors>
void register_tile(float* c, std::int64_t ldc, MatrixView<float> a, const float* b, std::int64_t ldb,
                   std::int64_t k, bool accumulate) {
  FloatVector sum[kRows][kVectors] = {};
  for (std::int64_t i = 0; i < k; ++i) {
    FloatVector row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + i * ldb + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] += a(r, i) * row[v];
    }
  }
  // Unrolled, too: otherwise the compiler keeps the sums in memory to index them.
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + r * ldc + v * kLanes;
      store(out, accumulate ? load(out) + sum[r][v] : sum[r][v]);
    }
  }
}

// Computes at most kRows rows of c: full tiles first, then single vectors, then single columns.
template <int kRows>
void row_panel(float* c, std::int64_t ldc, MatrixView<float> a, const float* b, std::int64_t ldb,
               MatmulSize size, bool accumulate) {
  if constexpr (kRows > 1) {
    if (size.m < kRows) return row_panel<kRows - 1>(c, ldc, a, b, ldb, size, accumulate);
  }
  std::int64_t n = 0;
  for (; n + kTileColumns <= size.n; n += kTileColumns) {
    register_tile<kRows, 2>(c + n, ldc, a, b + n, ldb, size.k, accumulate);
  }
  for (; n + kLanes <= size.n; n += kLanes) {
    register_tile<kRows, 1>(c + n, ldc, a, b + n, ldb, size.k, accumulate);
  }
  if (n < size.n)
    naive::matmul(c + n, ldc, a, row_major(b + n, ldb), {kRows, size.n - n, size.k}, accumulate);
}

// Copies rows [k0, k1) and columns [n0, n1) of b to `packed`, row-major.
void pack(float* packed, MatrixView<float> b, std::int64_t k0, std::int64_t k1, std::int64_t n0,
          std::int64_t n1) {
  const std::int64_t columns = n1 - n0;
  if (b.column_stride == 1) {
    for (std::int64_t k = k0; k < k1; ++k) std::copy_n(&b(k, n0), columns, packed + (k - k0) * columns);
    return;
  }
  for (std::int64_t n = n0; n < n1; ++n) {
    for (std::int64_t k = k0; k < k1; ++k) packed[(k - k0) * columns + n - n0] = b(k, n);
  }
}

}  // namespace

void tile_product(float* c, std::int64_t ldc, MatrixView<float> a, const float* b, std::int64_t ldb,
                  MatmulSize size, bool accumulate) {
  for (std::int64_t m = 0; m < size.m; m += kTileRows) {
    row_panel<kTileRows>(c + m * ldc, ldc, {&a(m, 0), a.row_stride, a.column_stride}, b, ldb,
                         {std::min<std::int64_t>(kTileRows, size.m - m), size.n, size.k}, accumulate);
  }
}

// A thread computes a panel of columns of c, in blocks of k. A block of b is packed once (at most 128 KiB,
// for the L2 cache) and multiplied with all rows of a.
void tiled::matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                   MatrixView<float> b, MatmulSize size, bool accumulate) {
  constexpr std::int64_t kColumns = 4 * kTileColumns, kDepth = 256;
  parallel.ranges(size.n, kColumns, [&](std::int64_t n0, std::int64_t n1) {
    thread_local std::vector<float> packed(kColumns * kDepth);
    for (std::int64_t k0 = 0; k0 < size.k; k0 += kDepth) {
      const std::int64_t k1 = std::min(size.k, k0 + kDepth);
      pack(packed.data(), b, k0, k1, n0, n1);
      tile_product(c + n0, ldc, {&a(0, k0), a.row_stride, a.column_stride}, packed.data(), n1 - n0,
                   {size.m, n1 - n0, k1 - k0}, accumulate || k0 > 0);
    }
  });
}

}  // namespace stagegpt
