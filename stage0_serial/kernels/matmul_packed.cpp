#include "stage0_serial/kernels/matmul_packed.h"

#include <algorithm>

#include "stage0_serial/kernels/scratch.h"

namespace stagegpt {

extern const PackedKernels kAvx512Kernels, kAvx2Kernels, kPlainKernels, kAvx512Bf16Kernels,
    kAvx512RoundingKernels, kAvx2RoundingKernels, kPlainRoundingKernels;

std::span<const PackedKernels* const> all_packed_kernels() {
#if defined(__x86_64__)
  static constexpr const PackedKernels* kAll[] = {
      &kAvx512Kernels,         &kAvx2Kernels,         &kPlainKernels,        &kAvx512Bf16Kernels,
      &kAvx512RoundingKernels, &kAvx2RoundingKernels, &kPlainRoundingKernels};
#else
  static constexpr const PackedKernels* kAll[] = {&kPlainKernels, &kPlainRoundingKernels};
#endif
  return kAll;
}

const PackedKernels& packed_kernels(Factors factors) {
  return **std::ranges::find_if(all_packed_kernels(), [&](const PackedKernels* kernels) {
    return kernels->factors == factors && kernels->can_run();
  });
}

namespace packed {
namespace {

constexpr std::int64_t kBlockRows = 1024;

std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

// The size of the largest of equal blocks that cover n, each of at most `largest`, a multiple of `step`.
std::int64_t block_size(std::int64_t n, std::int64_t largest, std::int64_t step) {
  return ceil_div(ceil_div(n, ceil_div(n, largest)), step) * step;
}

// Packs all rows of a: one panel after another.
void pack_all_rows(const PackedKernels& kernels, float* packed, MatrixView<float> a, std::int64_t m,
                   std::int64_t k) {
  const std::int64_t words = ceil_div(k, kernels.steps);
  for (std::int64_t i = 0; i < m; i += kernels.rows)
    kernels.pack_rows(packed + i * words, {&a(i, 0), a.row_stride, a.column_stride},
                      std::min(kernels.rows, m - i), k);
}

// The columns after column n0 of b (k,n).
NextColumns next_columns(const PackedKernels& kernels, MatrixView<float> b, std::int64_t n0, std::int64_t n,
                         std::int64_t k) {
  const std::int64_t next = n0 + kernels.columns;
  if (next >= n) return {};
  return {{&b(0, next), b.row_stride, b.column_stride}, std::min(kernels.columns, n - next), k};
}

// c (m,n) = a · b, or +=, for packed rows a and a block b of at most `depth` rows.
void multiply_block(const PackedKernels& kernels, float* c, std::int64_t ldc, const float* a,
                    MatrixView<float> b, MatmulSize size, bool accumulate) {
  thread_local Scratch scratch;
  const auto [panel] = scratch.pieces({kernels.columns * ceil_div(size.k, kernels.steps)});
  for (std::int64_t n0 = 0; n0 < size.n; n0 += kernels.columns) {
    const std::int64_t n = std::min(kernels.columns, size.n - n0);
    kernels.pack_columns(panel, {&b(0, n0), b.row_stride, b.column_stride}, n, size.k);
    kernels.multiply(c + n0, ldc, a, panel, {size.m, n, size.k}, accumulate,
                     next_columns(kernels, b, n0, size.n, size.k));
  }
}

// A sum of no products is zero.
void fill_unless(bool accumulate, float* c, std::int64_t ldc, MatmulSize size) {
  if (accumulate) return;
  for (std::int64_t m = 0; m < size.m; ++m) std::fill_n(c + m * ldc, size.n, 0.0f);
}

// One part of c, by one thread.
void multiply_part(const PackedKernels& kernels, float* c, std::int64_t ldc, MatrixView<float> a,
                   MatrixView<float> b, MatmulSize size, bool accumulate) {
  if (size.k == 0) return fill_unless(accumulate, c, ldc, size);
  thread_local Scratch scratch;
  const std::int64_t rows = block_size(size.m, kBlockRows, kernels.rows),
                     depth = block_size(size.k, kernels.depth, kernels.steps);
  const auto [packed] = scratch.pieces({rows * ceil_div(depth, kernels.steps)});
  for (std::int64_t m0 = 0; m0 < size.m; m0 += rows) {
    const std::int64_t m = std::min(rows, size.m - m0);
    for (std::int64_t k0 = 0; k0 < size.k; k0 += depth) {
      const std::int64_t k = std::min(depth, size.k - k0);
      pack_all_rows(kernels, packed, {&a(m0, k0), a.row_stride, a.column_stride}, m, k);
      multiply_block(kernels, c + m0 * ldc, ldc, packed, {&b(k0, 0), b.row_stride, b.column_stride},
                     {m, size.n, k}, accumulate || k0 > 0);
    }
  }
}

}  // namespace

Division division_of(const PackedKernels& kernels, int threads, std::int64_t m, std::int64_t n) {
  // To pack an element takes about as long as this many multiply-adds on the way through the tiles.
  constexpr std::int64_t kPacking = 32;
  const std::int64_t row_tiles = ceil_div(m, kernels.rows), column_tiles = ceil_div(n, kernels.columns);
  Division best{1, 1};
  std::int64_t least = 0;
  for (std::int64_t rows = 1; rows <= threads; ++rows) {
    const std::int64_t columns = threads / rows;
    const std::int64_t part_m = ceil_div(row_tiles, rows) * kernels.rows,
                       part_n = ceil_div(column_tiles, columns) * kernels.columns;
    const std::int64_t cost = part_m * part_n + kPacking * (part_m + part_n);
    if (rows > 1 && cost >= least) continue;
    best = {rows, columns};
    least = cost;
  }
  return best;
}

void matmul(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
            MatrixView<float> a, MatrixView<float> b, MatmulSize size, bool accumulate) {
  const Division division = division_of(kernels, parallel.threads(), size.m, size.n);
  const std::int64_t row_tiles = ceil_div(size.m, kernels.rows),
                     column_tiles = ceil_div(size.n, kernels.columns);
  parallel.each(division.rows * division.columns, [&](std::int64_t part) {
    const std::int64_t i = part / division.columns, j = part % division.columns;
    const std::int64_t m0 = row_tiles * i / division.rows * kernels.rows,
                       m1 = std::min(size.m, row_tiles * (i + 1) / division.rows * kernels.rows),
                       n0 = column_tiles * j / division.columns * kernels.columns,
                       n1 = std::min(size.n, column_tiles * (j + 1) / division.columns * kernels.columns);
    if (m0 >= m1 || n0 >= n1) return;
    multiply_part(kernels, c + m0 * ldc + n0, ldc, {&a(m0, 0), a.row_stride, a.column_stride},
                  {&b(0, n0), b.row_stride, b.column_stride}, {m1 - m0, n1 - n0, size.k}, accumulate);
  });
}

}  // namespace packed
}  // namespace stagegpt
