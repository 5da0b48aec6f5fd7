// The kernels of the packed GEMM for the instruction set that the including file is compiled for.
//
// A tile of c is kTileRows × kTileVectors vectors. It stays in registers during the loop over k, which adds
// an outer product of a column of a and a row of b. With AVX-512, one step of k:
//
// clang-format off
//            b[k]: 3 vectors
//           [  0  |  1  |  2  ]         3 loads of vectors of b
//      a0   [ c00 | c01 | c02 ]         8 loads of one element of a into all lanes
//      a1   [ c10 | c11 | c12 ]        24 fused multiply-adds
//      …    [  …  |  …  |  …  ]
//      a7   [ c70 | c71 | c72 ]
// clang-format on
//
// There are half as many loads as multiply-adds, and a processor does both at the same time: the
// multiply-adds seldom wait for a load. 24 registers hold the tile, 3 the row of b, one the element of a: 28
// of the 32 of AVX-512. AVX2 has 16: its tiles have 4 rows of 3 vectors. Without fused multiply-adds a
// product needs a register too: 4 rows of 2 vectors. NEON has 32 registers, but its multiply-add takes the
// element of a from one of them: 8 rows of 2 vectors. A multiply-add takes 4 or 5 cycles, and two can begin
// in each: fewer than 8 or 10 sums would wait for themselves.
#pragma once

#include <utility>

#include "stage0_serial/kernels/packed_kernels.h"
#include "stage0_serial/kernels/simd.h"

namespace stagegpt {
inline namespace STAGEGPT_SIMD {

inline constexpr int kTileRows = kVectorRegisters == 32 ? 8 : 4;
inline constexpr int kTileVectors = kVectorBytes == 16 ? 2 : 3;
inline constexpr int kTileColumns = kTileVectors * kLanes;
inline constexpr std::int64_t kLineBytes = 64;  // a cache line

// As many floats as a tile has rows: the side of the squares that are transposed in registers.
using ShortVector = float __attribute__((vector_size(4 * kTileRows)));

// a[first], b[first], a[first + 1], b[first + 1] and so on.
template <int kFirst, int... I>
inline ShortVector interleaved(ShortVector a, ShortVector b, std::integer_sequence<int, I...>) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, (kFirst + I / 2 + I % 2 * kTileRows)...);
#else
  using Indices = std::int32_t __attribute__((vector_size(4 * kTileRows)));
  return __builtin_shuffle(a, b, Indices{(kFirst + I / 2 + I % 2 * kTileRows)...});
#endif
}

// Transposes a square of kTileRows × kTileRows. One round interleaves vector i of the upper half with vector
// i of the lower half; log2(kTileRows) rounds bring element (r, k) to (k, r).
template <int kRound = 1>
inline void transpose(ShortVector (&square)[kTileRows]) {
  if constexpr (kRound < kTileRows) {
    constexpr int kHalf = kTileRows / 2;
    constexpr std::make_integer_sequence<int, kTileRows> kElements;
    ShortVector mixed[kTileRows];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      mixed[2 * i] = interleaved<0>(square[i], square[i + kHalf], kElements);
      mixed[2 * i + 1] = interleaved<kHalf>(square[i], square[i + kHalf], kElements);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) square[i] = mixed[i];
    transpose<2 * kRound>(square);
  }
}

// The words of a panel: what a tile multiplies at a time. One word is kSteps steps of k of one row of a or
// one column of b, in the 32 bits of a float.
//
// F32Words: an element as it is, an f32 or a bf16.
struct F32Words {
  static constexpr int kSteps = 1;
  // The word of the first n steps (1 to kSteps) of a line whose elements are `stride` apart.
  static float word(const float* line, std::int64_t /*stride*/, std::int64_t /*n*/) { return *line; }
  // The words of the next kTileRows·kSteps steps of a line without gaps.
  static ShortVector words_of_line(const float* line) {
    ShortVector words;
    __builtin_memcpy(&words, line, sizeof words);
    return words;
  }
  // The words of kTileRows lines, whose elements of one step lie side by side in a row; n rows, `stride`
  // apart.
  template <class Element>
  static ShortVector words_of_rows(const Element* row, std::int64_t /*stride*/, std::int64_t /*n*/) {
    return words_of_line(row);
  }
  static FloatVector add_product(FloatVector sum, float a, FloatVector b) { return multiply_add(a, b, sum); }

  // An element of bf16 is the upper half of an f32.
  static float word(const Bf16* line, std::int64_t /*stride*/, std::int64_t /*n*/) {
    const std::uint32_t bits = std::uint32_t{line->bits} << 16;
    float word;
    __builtin_memcpy(&word, &bits, sizeof word);
    return word;
  }
  static ShortVector words_of_line(const Bf16* line) {
    using ShortHalves = std::uint16_t __attribute__((vector_size(2 * kTileRows)));
    using ShortBits = std::uint32_t __attribute__((vector_size(4 * kTileRows)));
    ShortHalves halves;
    __builtin_memcpy(&halves, line, sizeof halves);
    const ShortBits bits = __builtin_convertvector(halves, ShortBits) << 16;
    return __builtin_bit_cast(ShortVector, bits);
  }
};

// RoundedWords: an element rounded to bf16, as an f32: for processors that cannot multiply bf16.
struct RoundedWords {
  static constexpr int kSteps = 1;
  static float word(const float* line, std::int64_t stride, std::int64_t n) {
    const float element = F32Words::word(line, stride, n);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &element, sizeof bits);
    return as<float>(rounded_to_bf16(bits));
  }
  static ShortVector words_of_line(const float* line) {
    return as<ShortVector>(rounded_to_bf16(as<ShortBits>(F32Words::words_of_line(line))));
  }
  template <class Element>
  static ShortVector words_of_rows(const Element* row, std::int64_t /*stride*/, std::int64_t /*n*/) {
    return words_of_line(row);
  }
  static FloatVector add_product(FloatVector sum, float a, FloatVector b) {
    return F32Words::add_product(sum, a, b);
  }
  // An element of bf16 needs no rounding.
  static float word(const Bf16* line, std::int64_t stride, std::int64_t n) {
    return F32Words::word(line, stride, n);
  }
  static ShortVector words_of_line(const Bf16* line) { return F32Words::words_of_line(line); }

 private:
  using ShortBits = std::uint32_t __attribute__((vector_size(4 * kTileRows)));
  template <class To, class From>
  static To as(From from) {
    return __builtin_bit_cast(To, from);
  }
  // To nearest, ties to even; NaN stays NaN. Bits of one f32 or of a vector.
  template <class Bits>
  static Bits rounded_to_bf16(Bits bits) {
    const Bits rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return ((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) & 0xffff0000u;
  }
};

// For processors that multiply bf16: a word is the elements of two steps of k, the earlier one in the lower
// half. An odd last step has a zero beside it. A line of bf16 elements is a line of words.
struct PairWords {
  static constexpr int kSteps = 2;
  static float word(const Bf16* line, std::int64_t stride, std::int64_t n) {
    const std::uint32_t late = n > 1 ? line[stride].bits : 0;
    return __builtin_bit_cast(float, line->bits | late << 16);
  }
  static ShortVector words_of_line(const Bf16* line) {
    ShortVector words;
    __builtin_memcpy(&words, line, sizeof words);
    return words;
  }
};

constexpr std::int64_t words_of(std::int64_t k, int steps) { return (k + steps - 1) / steps; }

// packed[i·kWidth + j] = word i of line j, for kTileRows lines of k steps without gaps, `stride` apart.
template <class Words, int kWidth, class Element>
inline void pack_lines(float* packed, const Element* lines, std::int64_t stride, std::int64_t k) {
  constexpr int kSteps = Words::kSteps;
  std::int64_t i = 0;
  for (; (i + kTileRows) * kSteps <= k; i += kTileRows) {
    ShortVector square[kTileRows];
#pragma GCC unroll 8
    for (int j = 0; j < kTileRows; ++j) square[j] = Words::words_of_line(lines + j * stride + i * kSteps);
    transpose(square);
#pragma GCC unroll 8
    for (int j = 0; j < kTileRows; ++j)
      __builtin_memcpy(packed + (i + j) * kWidth, &square[j], sizeof square[j]);
  }
  for (; i * kSteps < k; ++i) {
    for (int j = 0; j < kTileRows; ++j)
      packed[i * kWidth + j] = Words::word(lines + j * stride + i * kSteps, 1, k - i * kSteps);
  }
}

// Packs kPanels panels, one after another, of kWidth lines each, whose elements of one step lie side
// by side, in rows that are `stride` apart.
template <class Words, int kWidth, int kPanels = 1, class Element>
inline void pack_rows_of_steps(float* packed, const Element* rows, std::int64_t stride, std::int64_t k) {
  constexpr int kSteps = Words::kSteps;
  const std::int64_t panel_size = words_of(k, kSteps) * kWidth;
  for (std::int64_t i = 0; i * kSteps < k; ++i) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
      for (int j = 0; j < kWidth; j += kTileRows) {
        const ShortVector words =
            Words::words_of_rows(rows + i * kSteps * stride + p * kWidth + j, stride, k - i * kSteps);
        __builtin_memcpy(packed + p * panel_size + i * kWidth + j, &words, sizeof words);
      }
    }
  }
}

// packed[i·kWidth + j] = word i of line j, for n ≤ kWidth lines (n,k); the others are zero.
template <class Words, int kWidth, class Element>
inline void pack(float* packed, MatrixView<Element> lines, std::int64_t n, std::int64_t k) {
  if (lines.row_stride == 1 && n >= kWidth)
    return pack_rows_of_steps<Words, kWidth>(packed, lines.data, lines.column_stride, k);
  std::int64_t j = 0;
  if (lines.column_stride == 1) {
    for (; j + kTileRows <= (n < kWidth ? n : kWidth); j += kTileRows)
      pack_lines<Words, kWidth>(packed + j, lines.data + j * lines.row_stride, lines.row_stride, k);
  }
  for (std::int64_t i = 0; i < k; i += Words::kSteps) {
    for (std::int64_t l = j; l < kWidth; ++l) {
      const Element* first = lines.data + l * lines.row_stride + i * lines.column_stride;
      packed[i / Words::kSteps * kWidth + l] = l < n ? Words::word(first, lines.column_stride, k - i) : 0.0f;
    }
  }
}

// Panels of kTileRows rows of a (m,k), one after another. Where the elements of one step lie side by side, as
// many panels at a time as share a line of the cache: otherwise each line would be read again for each panel.
template <class Words, class Element>
inline void pack_rows(float* packed, MatrixView<Element> a, std::int64_t m, std::int64_t k) {
  constexpr int kPanels = kLineBytes / sizeof(Element) / kTileRows;
  const std::int64_t words = words_of(k, Words::kSteps);
  std::int64_t i = 0;
  if (a.row_stride == 1) {
    for (; i + kPanels * kTileRows <= m; i += kPanels * kTileRows)
      pack_rows_of_steps<Words, kTileRows, kPanels>(packed + i * words, &a(i, 0), a.column_stride, k);
  }
  for (; i < m; i += kTileRows) {
    const MatrixView<Element> panel = {&a(i, 0), a.row_stride, a.column_stride};
    pack<Words, kTileRows>(packed + i * words, panel, m - i < kTileRows ? m - i : kTileRows, k);
  }
}

template <class Words, class Element>
inline void pack_columns(float* packed, MatrixView<Element> b, std::int64_t n, std::int64_t k) {
  pack<Words, kTileColumns, Element>(packed, {b.data, b.column_stride, b.row_stride}, n, k);
}

// c (kRows,n) = sum, or += with `accumulate`. The loops that index `sum` are unrolled: otherwise the compiler
// keeps the sums in memory.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void store_tile(float* c, std::int64_t ldc,
                                              const FloatVector (&sum)[kRows][kVectors], std::int64_t n,
                                              bool accumulate) {
  constexpr std::int64_t kColumns = kVectors * kLanes;
  if (n >= kColumns) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* const out = c + r * ldc + v * kLanes;
        store(out, accumulate ? load(out) + sum[r][v] : sum[r][v]);
      }
    }
    return;
  }
  float rows[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(rows[r] + v * kLanes, sum[r][v]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < n; ++i)
      c[r * ldc + i] = accumulate ? c[r * ldc + i] + rows[r][i] : rows[r][i];
  }
}

// A tile of kRows rows and n columns, which are more than kVectors - 1 vectors and at most kVectors.
template <class Words, int kRows, int kVectors>
void tile(float* c, std::int64_t ldc, const float* a, const float* b, std::int64_t n, std::int64_t words,
          bool accumulate) {
  constexpr std::int64_t kAhead = 16;  // words; a is read from the second-level cache
  constexpr int kWordsOfLine = kLineBytes / 4 / kTileRows;
  FloatVector sum[kRows][kVectors] = {};
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + r * ldc + v * kLanes, /*write*/ 1);
  }
  const auto add_word = [&](std::int64_t i) __attribute__((always_inline)) {
    FloatVector row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = load(b + i * kTileColumns + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = Words::add_product(sum[r][v], a[i * kTileRows + r], row[v]);
    }
  };
  // A line of the cache of a at a time: fewer instructions for each multiply-add.
  std::int64_t i = 0;
  for (; i + kWordsOfLine <= words; i += kWordsOfLine) {
    __builtin_prefetch(a + (i + kAhead) * kTileRows);
#pragma GCC unroll 4
    for (int w = 0; w < kWordsOfLine; ++w) add_word(i + w);
  }
  for (; i < words; ++i) add_word(i);
  store_tile<kRows, kVectors>(c, ldc, sum, n, accumulate);
}

// A tile with at most kRows rows and n ≤ kVectors vectors of columns; k in words.
template <class Words, int kRows = kTileRows, int kVectors = kTileVectors>
void tile_of(float* c, std::int64_t ldc, const float* a, const float* b, MatmulSize size, bool accumulate) {
  if constexpr (kRows > 1) {
    if (size.m < kRows) return tile_of<Words, kRows - 1, kVectors>(c, ldc, a, b, size, accumulate);
  }
  if constexpr (kVectors > 1) {
    if (size.n <= (kVectors - 1) * kLanes)
      return tile_of<Words, kRows, kVectors - 1>(c, ldc, a, b, size, accumulate);
  }
  tile<Words, kRows, kVectors>(c, ldc, a, b, size.n, size.k, accumulate);
}

// Asks for a share of the next columns, which may still be in memory; each line of the cache once.
inline void prefetch(const NextColumns& next, std::int64_t share, std::int64_t shares) {
  constexpr int kRead = 0, kSecondLevel = 2;
  for (std::int64_t i = next.lines * share / shares; i < next.lines * (share + 1) / shares; ++i) {
    for (std::int64_t at = 0; at < next.bytes; at += kLineBytes)
      __builtin_prefetch(next.begin + i * next.stride + at, kRead, kSecondLevel);
  }
}

template <class Words>
inline void multiply(float* c, std::int64_t ldc, const float* a, const float* b, MatmulSize size,
                     bool accumulate, const NextColumns& next) {
  const std::int64_t tiles = (size.m + kTileRows - 1) / kTileRows, words = words_of(size.k, Words::kSteps);
  for (std::int64_t t = 0; t < tiles; ++t) {
    prefetch(next, t, tiles);
    const std::int64_t row = t * kTileRows;
    tile_of<Words>(c + row * ldc, ldc, a + row * words, b, {size.m - row, size.n, words}, accumulate);
  }
}

template <class Words>
inline float multiply_adds(std::int64_t count) {
  volatile float half = 0.5f;
  const float a = half;
  FloatVector b = FloatVector{} + a;
  FloatVector sum[kTileRows][kTileVectors];
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
      for (int v = 0; v < kTileVectors; ++v) {
        asm(""
            : "+" STAGEGPT_VECTOR_CONSTRAINT(b));  // to the compiler, b may have changed: it multiplies again
        sum[r][v] = Words::add_product(sum[r][v], a, b);
      }
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
template <class Words>
constexpr PackedKernels packed_kernels_for(const char* name, Factors factors, bool (*can_run)(),
                                           std::int64_t depth) {
  return {.name = name,
          .factors = factors,
          .can_run = can_run,
          .rows = kTileRows,
          .columns = kTileColumns,
          .depth = depth,
          .steps = Words::kSteps,
          .floats = {pack_rows<Words, float>, pack_columns<Words, float>},
          .halves = {pack_rows<Words, Bf16>, pack_columns<Words, Bf16>},
          .multiply = multiply<Words>,
          .multiply_adds = multiply_adds<Words>};
}

}  // namespace STAGEGPT_SIMD
}  // namespace stagegpt
