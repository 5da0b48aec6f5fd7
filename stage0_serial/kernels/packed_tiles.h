// The kernels of the packed GEMM for the instruction set that the including file is compiled for.
//
// A tile of c is kTileRows × kTileVectors vectors. It stays in registers during the loop over k, which adds
// an outer product of a column of a and a row of b:
//
//            b[k]: 3 vectors              for each k:   3 loads of vectors of b
//           [  0  |  1  |  2  ]                         8 loads of one element of a into all lanes
//      a0   [ c00 | c01 | c02 ]                        24 fused multiply-adds
//      a1   [ c10 | c11 | c12 ]
//      …    [  …  |  …  |  …  ]           The loads are half as many as the multiply-adds, which the
//      processor a7   [ c70 | c71 | c72 ]           can do at the same time: the adds never wait for memory.
//
// 24 registers hold the tile, 3 the row of b, one the element of a: 28 of the 32 of AVX-512. AVX2 has 16: its
// tiles have 4 rows. There must be at least 8 or 10 sums, because a multiply-add takes 4 cycles, and two
// begin in every cycle.
#pragma once

#include "stage0_serial/kernels/packed_kernels.h"
#include "stage0_serial/kernels/simd.h"

namespace stagegpt {
inline namespace STAGEGPT_SIMD {

inline constexpr int kTileRows = kVectorRegisters == 32 ? 8 : 4;
inline constexpr int kTileVectors = kVectorBytes == 16 ? 2 : 3;
inline constexpr int kTileColumns = kTileVectors * kLanes;
inline constexpr std::int64_t kLineFloats = 16;  // a cache line

// As many floats as a tile has rows: the side of the squares that are transposed in registers.
using ShortVector = float __attribute__((vector_size(4 * kTileRows)));
using ShortIndices = std::int32_t __attribute__((vector_size(4 * kTileRows)));

// Transposes a square of kTileRows × kTileRows. One round interleaves vector i of the upper half with vector
// i of the lower half; log2(kTileRows) rounds bring element (r, k) to (k, r).
template <int kRound = 1>
inline void transpose(ShortVector (&square)[kTileRows]) {
  if constexpr (kRound < kTileRows) {
    constexpr int kHalf = kTileRows / 2;
    ShortIndices first, second;
    for (int i = 0; i < kTileRows; ++i) {
      first[i] = i / 2 + i % 2 * kTileRows;
      second[i] = first[i] + kHalf;
    }
    ShortVector mixed[kTileRows];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      mixed[2 * i] = __builtin_shuffle(square[i], square[i + kHalf], first);
      mixed[2 * i + 1] = __builtin_shuffle(square[i], square[i + kHalf], second);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) square[i] = mixed[i];
    transpose<2 * kRound>(square);
  }
}

// packed[i·kWidth + j] = lines[j][i] for the k elements of kTileRows lines, each of which lies in one piece.
template <int kWidth>
inline void pack_lines(float* packed, const float* lines, std::int64_t stride, std::int64_t k) {
  std::int64_t i = 0;
  for (; i + kTileRows <= k; i += kTileRows) {
    ShortVector square[kTileRows];
#pragma GCC unroll 8
    for (int j = 0; j < kTileRows; ++j)
      __builtin_memcpy(&square[j], lines + j * stride + i, sizeof square[j]);
    transpose(square);
#pragma GCC unroll 8
    for (int j = 0; j < kTileRows; ++j)
      __builtin_memcpy(packed + (i + j) * kWidth, &square[j], sizeof square[j]);
  }
  for (; i < k; ++i) {
    for (int j = 0; j < kTileRows; ++j) packed[i * kWidth + j] = lines[j * stride + i];
  }
}

// packed[i·kWidth + j] = lines (j, i), for n ≤ kWidth lines; the others are zero.
template <int kWidth>
inline void pack(float* packed, MatrixView<float> lines, std::int64_t n, std::int64_t k) {
  if (lines.row_stride == 1 && n >= kWidth) {
    for (std::int64_t i = 0; i < k; ++i)
      __builtin_memcpy(packed + i * kWidth, lines.data + i * lines.column_stride, 4 * kWidth);
    return;
  }
  std::int64_t j = 0;
  if (lines.column_stride == 1) {
    for (; j + kTileRows <= (n < kWidth ? n : kWidth); j += kTileRows)
      pack_lines<kWidth>(packed + j, lines.data + j * lines.row_stride, lines.row_stride, k);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t l = j; l < kWidth; ++l)
      packed[i * kWidth + l] = l < n ? lines.data[l * lines.row_stride + i * lines.column_stride] : 0.0f;
  }
}

inline void pack_rows(float* packed, MatrixView<float> a, std::int64_t m, std::int64_t k) {
  pack<kTileRows>(packed, a, m, k);
}

inline void pack_columns(float* packed, MatrixView<float> b, std::int64_t n, std::int64_t k) {
  pack<kTileColumns>(packed, {b.data, b.column_stride, b.row_stride}, n, k);
}

// out (lanes ≤ kLanes) = sum, or += with `accumulate`.
inline void store_sum(float* out, FloatVector sum, std::int64_t lanes, bool accumulate) {
  if (lanes >= kLanes) return store(out, accumulate ? load(out) + sum : sum);
  for (std::int64_t i = 0; i < lanes; ++i) out[i] = accumulate ? out[i] + sum[i] : sum[i];
}

// A tile of kRows rows and n columns, which are more than kVectors - 1 vectors and at most kVectors.
template <int kRows, int kVectors>
void tile(float* c, std::int64_t ldc, const float* a, const float* b, std::int64_t n, std::int64_t k,
          bool accumulate) {
  constexpr std::int64_t kAhead = 8;  // steps of k; a is read from the second-level cache
  FloatVector sum[kRows][kVectors] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + r * ldc + v * kLanes, /*write*/ 1);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    __builtin_prefetch(a + (i + kAhead) * kTileRows);
    FloatVector row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + i * kTileColumns + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += a[i * kTileRows + r] * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      store_sum(c + r * ldc + v * kLanes, sum[r][v], n - v * kLanes, accumulate);
  }
}

// A tile with at most kRows rows and n ≤ kVectors vectors of columns.
template <int kRows = kTileRows, int kVectors = kTileVectors>
void tile_of(float* c, std::int64_t ldc, const float* a, const float* b, MatmulSize size, bool accumulate) {
  if constexpr (kRows > 1) {
    if (size.m < kRows) return tile_of<kRows - 1, kVectors>(c, ldc, a, b, size, accumulate);
  }
  if constexpr (kVectors > 1) {
    if (size.n <= (kVectors - 1) * kLanes)
      return tile_of<kRows, kVectors - 1>(c, ldc, a, b, size, accumulate);
  }
  tile<kRows, kVectors>(c, ldc, a, b, size.n, size.k, accumulate);
}

// Asks for a share of the next columns, which may still be in memory; each line of the cache once.
inline void prefetch(const NextColumns& next, std::int64_t share, std::int64_t shares) {
  constexpr int kRead = 0, kSecondLevel = 2;
  const MatrixView<float>& b = next.columns;
  const bool by_rows = b.column_stride == 1;
  const std::int64_t lines = by_rows ? next.k : next.n, length = by_rows ? next.n : next.k,
                     stride = by_rows ? b.row_stride : b.column_stride;
  for (std::int64_t i = lines * share / shares; i < lines * (share + 1) / shares; ++i) {
    for (std::int64_t at = 0; at < length; at += kLineFloats)
      __builtin_prefetch(b.data + i * stride + at, kRead, kSecondLevel);
  }
}

inline void multiply(float* c, std::int64_t ldc, const float* a, const float* b, MatmulSize size,
                     bool accumulate, const NextColumns& next) {
  const std::int64_t tiles = (size.m + kTileRows - 1) / kTileRows;
  for (std::int64_t t = 0; t < tiles; ++t) {
    prefetch(next, t, tiles);
    const std::int64_t row = t * kTileRows;
    tile_of(c + row * ldc, ldc, a + row * size.k, b, {size.m - row, size.n, size.k}, accumulate);
  }
}

inline float multiply_add(std::int64_t count) {
  FloatVector sum[kTileRows][kTileVectors], factor = FloatVector{} + 0.5f;
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = FloatVector{} + static_cast<float>(r * kTileVectors + v);
  }
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = sum[r][v] * factor + factor;
    }
  }
  FloatVector total = {};
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) total += sum[r][v];
  }
  return sum_of(total);
}

// The kernels, for one file per instruction set.
constexpr PackedKernels packed_kernels_for(const char* name, bool (*can_run)(), std::int64_t depth) {
  return {name, can_run, kTileRows, kTileColumns, depth, pack_rows, pack_columns, multiply, multiply_add};
}

}  // namespace STAGEGPT_SIMD
}  // namespace stagegpt
