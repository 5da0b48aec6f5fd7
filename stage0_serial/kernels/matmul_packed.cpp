#include "stage0_serial/kernels/matmul_packed.h"

#include <algorithm>

#include "stage0_serial/kernels/activation.h"
#include "stage0_serial/kernels/real.h"
#include "stage0_serial/kernels/scratch.h"

namespace stagegpt {

extern const PackedKernels kAvx512Kernels, kAvx2Kernels, kPlainKernels, kAvx512Bf16Kernels,
    kAvx512RoundingKernels, kAvx2RoundingKernels, kPlainRoundingKernels, kNeonBf16Kernels;

std::span<const PackedKernels* const> all_packed_kernels() {
#if defined(__x86_64__)
  static constexpr const PackedKernels* kAll[] = {
      &kAvx512Kernels,         &kAvx2Kernels,         &kPlainKernels,        &kAvx512Bf16Kernels,
      &kAvx512RoundingKernels, &kAvx2RoundingKernels, &kPlainRoundingKernels};
#elif defined(__aarch64__)
  static constexpr const PackedKernels* kAll[] = {&kPlainKernels, &kNeonBf16Kernels, &kPlainRoundingKernels};
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

template <class Element>
const Packing<Element>& packing(const PackedKernels& kernels);
template <>
const Packing<float>& packing(const PackedKernels& kernels) {
  return kernels.floats;
}
template <>
const Packing<Bf16>& packing(const PackedKernels& kernels) {
  return kernels.halves;
}

// The part of a matrix from this row and column on.
template <class Element>
MatrixView<Element> part_from(const MatrixView<Element>& matrix, std::int64_t row, std::int64_t column) {
  return {&matrix(row, column), matrix.row_stride, matrix.column_stride};
}

// The columns after column n0 of b (k,n).
template <class Element>
NextColumns next_columns(const PackedKernels& kernels, MatrixView<Element> b, std::int64_t n0, std::int64_t n,
                         std::int64_t k) {
  constexpr std::int64_t kBytes = sizeof(Element);
  const std::int64_t next = n0 + kernels.columns;
  if (next >= n) return {};
  const char* const begin = reinterpret_cast<const char*>(&b(0, next));
  const std::int64_t columns = std::min(kernels.columns, n - next);
  if (b.column_stride == 1) return {begin, k, columns * kBytes, b.row_stride * kBytes};
  return {begin, columns, k * kBytes, b.column_stride * kBytes};
}

// Sums in f32: c itself, or memory of a thread for some of its columns.
struct Sums {
  float* data;
  std::int64_t ld;
  bool one_panel;  // memory for one panel, which each takes in turn

  float* panel(std::int64_t column) const { return data + (one_panel ? 0 : column); }
};

// Sums (m,n) = a · b, or +=, for packed rows a and a block b of at most `depth` rows. Calls
// done(sums, n0, n) after each panel of columns.
template <class Element, class Done>
void multiply_block(const PackedKernels& kernels, const Sums& sums, const float* a, MatrixView<Element> b,
                    MatmulSize size, bool accumulate, const Done& done) {
  thread_local Scratch scratch;
  const auto [panel] = scratch.pieces({kernels.columns * ceil_div(size.k, kernels.steps)});
  for (std::int64_t n0 = 0; n0 < size.n; n0 += kernels.columns) {
    const std::int64_t n = std::min(kernels.columns, size.n - n0);
    float* const out = sums.panel(n0);
    packing<Element>(kernels).columns(panel, part_from(b, 0, n0), n, size.k);
    kernels.multiply(out, sums.ld, a, panel, {size.m, n, size.k}, accumulate,
                     next_columns(kernels, b, n0, size.n, size.k));
    done(out, n0, n);
  }
}

// A sum of no products is zero.
void fill_unless(bool accumulate, float* c, std::int64_t ldc, MatmulSize size) {
  if (accumulate) return;
  for (std::int64_t m = 0; m < size.m; ++m) std::fill_n(c + m * ldc, size.n, 0.0f);
}

// One part of c in f32, by one thread.
template <class Element>
void multiply_part(const PackedKernels& kernels, float* c, std::int64_t ldc, MatrixView<Element> a,
                   MatrixView<Element> b, MatmulSize size, bool accumulate) {
  if (size.k == 0) return fill_unless(accumulate, c, ldc, size);
  thread_local Scratch scratch;
  const std::int64_t rows = block_size(size.m, kBlockRows, kernels.rows),
                     depth = block_size(size.k, kernels.depth, kernels.steps);
  const auto [packed] = scratch.pieces({rows * ceil_div(depth, kernels.steps)});
  for (std::int64_t m0 = 0; m0 < size.m; m0 += rows) {
    const std::int64_t m = std::min(rows, size.m - m0);
    for (std::int64_t k0 = 0; k0 < size.k; k0 += depth) {
      const std::int64_t k = std::min(depth, size.k - k0);
      packing<Element>(kernels).rows(packed, part_from(a, m0, k0), m, k);
      multiply_block(kernels, {c + m0 * ldc, ldc, false}, packed, part_from(b, k0, 0), {m, size.n, k},
                     accumulate || k0 > 0, [](float*, std::int64_t, std::int64_t) {});
    }
  }
}

// One part of c (m,ldc) in bf16, by one thread: its rows from m0 and its columns from n0 on.
void multiply_and_finish_part(const PackedKernels& kernels, Bf16* c, std::int64_t ldc, MatrixView<Bf16> a,
                              MatrixView<Bf16> b, std::int64_t m0, std::int64_t n0, MatmulSize size,
                              const Finish& finish) {
  // Columns whose sums are kept at a time where there are several blocks of depth.
  constexpr std::int64_t kSumColumns = 1536;
  thread_local Scratch scratch;
  const std::int64_t rows = block_size(size.m, kBlockRows, kernels.rows),
                     depth = block_size(std::max<std::int64_t>(1, size.k), kernels.depth, kernels.steps);
  const bool one_panel = size.k <= depth;
  const std::int64_t columns = one_panel ? size.n : block_size(size.n, kSumColumns, kernels.columns),
                     ld = one_panel ? kernels.columns : columns;
  const auto [packed, sums] = scratch.pieces({rows * ceil_div(depth, kernels.steps), rows * ld});
  for (std::int64_t i = m0; i < m0 + size.m; i += rows) {
    for (std::int64_t j = n0; j < n0 + size.n; j += columns) {
      const std::int64_t m = std::min(rows, m0 + size.m - i), n = std::min(columns, n0 + size.n - j);
      std::int64_t k0 = 0;
      do {
        const std::int64_t k = std::min(depth, size.k - k0);
        packing<Bf16>(kernels).rows(packed, part_from(a, i, k0), m, k);
        multiply_block(kernels, {sums, ld, one_panel}, packed, part_from(b, k0, j), {m, n, k}, k0 > 0,
                       [&](float* panel, std::int64_t from, std::int64_t width) {
                         if (k0 + k < size.k) return;
                         for (std::int64_t row = 0; row < m; ++row) {
                           const std::int64_t at = (i + row) * ldc + j + from;
                           finish_row(c + at, panel + row * ld, width, finish.from(at, j + from));
                         }
                       });
        k0 += depth;
      } while (k0 < size.k);
    }
  }
}

// Calls part(m0, n0, m, n) for each part of the grid, one on each thread.
template <class Part>
void each_part(const PackedKernels& kernels, const Parallel& parallel, MatmulSize size, const Part& part) {
  const Division division = division_of(kernels, parallel.threads(), size.m, size.n);
  const std::int64_t row_tiles = ceil_div(size.m, kernels.rows),
                     column_tiles = ceil_div(size.n, kernels.columns);
  parallel.each(division.rows * division.columns, [&](std::int64_t index) {
    const std::int64_t i = index / division.columns, j = index % division.columns;
    const std::int64_t m0 = row_tiles * i / division.rows * kernels.rows,
                       m1 = std::min(size.m, row_tiles * (i + 1) / division.rows * kernels.rows),
                       n0 = column_tiles * j / division.columns * kernels.columns,
                       n1 = std::min(size.n, column_tiles * (j + 1) / division.columns * kernels.columns);
    if (m0 < m1 && n0 < n1) part(m0, n0, m1 - m0, n1 - n0);
  });
}

template <class Element>
void matmul_in_f32(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
                   MatrixView<Element> a, MatrixView<Element> b, MatmulSize size, bool accumulate) {
  each_part(kernels, parallel, size, [&](std::int64_t m0, std::int64_t n0, std::int64_t m, std::int64_t n) {
    multiply_part(kernels, c + m0 * ldc + n0, ldc, part_from(a, m0, 0), part_from(b, 0, n0), {m, n, size.k},
                  accumulate);
  });
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

Finish Finish::from(std::int64_t at, std::int64_t column) const {
  Finish part = *this;
  if (bias) part.bias += column;
  if (pre) part.pre += at;
  return part;
}

void finish_row(Bf16* c, float* sums, std::int64_t n, const Finish& finish) {
  Bf16* const pre = finish.pre;
  if (const Bf16* const bias = finish.bias) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) sums[i] += widened(bias[i]);
  }
  if (finish.kind == Finish::Kind::activation) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) {
      pre[i] = rounded_to<Bf16>(sums[i]);
      sums[i] = widened(pre[i]);
    }
    vectorised::activate(sums, sums, finish.activation, 0, n);
  } else if (finish.kind == Finish::Kind::slope) {
    with_activation<float>(finish.activation, VectorExp(), [&](auto f) {
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) sums[i] *= f(widened(pre[i])).slope;
    });
  }
  if (finish.accumulate) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) sums[i] += widened(c[i]);
  }
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) c[i] = rounded_to<Bf16>(sums[i]);
}

void matmul(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
            MatrixView<float> a, MatrixView<float> b, MatmulSize size, bool accumulate) {
  matmul_in_f32(kernels, parallel, c, ldc, a, b, size, accumulate);
}

void matmul(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
            MatrixView<Bf16> a, MatrixView<Bf16> b, MatmulSize size, bool accumulate) {
  matmul_in_f32(kernels, parallel, c, ldc, a, b, size, accumulate);
}

void matmul(const PackedKernels& kernels, const Parallel& parallel, Bf16* c, MatrixView<Bf16> a,
            MatrixView<Bf16> b, MatmulSize size, const Finish& finish) {
  each_part(kernels, parallel, size, [&](std::int64_t m0, std::int64_t n0, std::int64_t m, std::int64_t n) {
    multiply_and_finish_part(kernels, c, size.n, a, b, m0, n0, {m, n, size.k}, finish);
  });
}

}  // namespace packed
}  // namespace stagegpt
