// GEMM with packed panels: c = a · b, or += with `accumulate`. The default of --cpu-matmul.
//
// A product of 256 × 768 × 3072 does 1.2 GFLOP on 3.3 million numbers, so each number should be used hundreds
// of times between its trip from memory and the next. Four levels of blocks see to it (Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008, with the roles that suit row-major matrices):
//
//   threads     c is divided into a grid of parts, one for each thread             division_of()
//   rows of a   at most kBlockRows at a time; packed, they stay in the L2 or L3 cache
//   depth       at most `depth` steps of k at a time
//   columns     a panel of b, as wide as a tile, is packed into the L1 or L2 cache, and multiplied with all
//               rows that are packed, tile by tile                                 packed_tiles.h
//
// With AVX-512 these are the loops; in brackets, the names of the sizes in the BLIS library:
//
//   for each part of c, on a thread of its own
//     for at most 1024 rows (MC)
//       for at most 384 steps of k (KC)              pack these rows of a             1024 × 384: 1.5 MiB
//         for 48 columns (NR)                        pack these columns of b            384 × 48: 72 KiB
//           for 8 rows (MR)                          a tile of c                          8 × 48: registers
//             for each of the steps of k             c += column of a · row of b
//
// To pack is to copy into the order in which the tiles read: step by step of k, so that each read takes the
// next bytes of one stream, from few pages, without conflicts in the cache. A panel of 8 rows of a, and one
// of 48 columns of b, as they lie in memory:
//
//   a00 a10 … a70   a01 a11 … a71   a02 …       b00 b01 … b0,47   b10 b11 … b1,47   b20 …
//   step 0 of k     step 1          step 2      step 0            step 1            step 2
//
// The copy also hides whether an operand is transposed. Packing costs one read and one write of a panel of b
// for 2·m operations on each of its elements: about a tenth of the time at m = 256. While one panel is
// multiplied, the processor fetches the next from memory.
//
// With few rows, packing b takes most of the time: 4 rows reach 40 % of the rate of 256.
//
// k is divided into blocks by its length alone. In each block an element of c is a sum in ascending order of
// k, which begins at zero; the sums of the blocks are added to c in order. So the bits of an element do not
// depend on the other rows and columns of the product, nor on the number of threads. They do depend on the
// instruction set.
//
// If c is bf16, the sums of a panel's columns are kept in f32 until the last block of depth has been added.
// Then, while they are in a cache, what follows the product is done (Finish: bias, activation), and they are
// rounded, once.
#pragma once

#include "common/backend/op_types.h"
#include "stage0_serial/kernels/packed_kernels.h"
#include "stage0_serial/parallel.h"

namespace stagegpt::packed {

// Rows of c are ldc elements apart.
void matmul(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
            MatrixView<float> a, MatrixView<float> b, MatmulSize size, bool accumulate);
// The product of factors in bf16.
void matmul(const PackedKernels& kernels, const Parallel& parallel, float* c, std::int64_t ldc,
            MatrixView<Bf16> a, MatrixView<Bf16> b, MatmulSize size, bool accumulate);

// What becomes of a sum in f32 before it is rounded to bf16 as an element of c (m,n).
struct Finish {
  enum class Kind : std::uint8_t { none, activation, slope };

  const Bf16* bias = nullptr;  // (n): it is added
  // activation: `pre` (m,n) receives the sum, and c receives the activation of what `pre` received.
  // slope: the sum is multiplied by the derivative of the activation at `pre`.
  Kind kind = Kind::none;
  Activation activation = Activation::none;
  Bf16* pre = nullptr;
  bool accumulate = false;  // it is added to what c holds

  // How a part of a row is finished: from element `at` of c, which is in column `column`.
  Finish from(std::int64_t at, std::int64_t column) const;
};

// Elements of a row of c, from their sums; `finish` belongs to them alone.
void finish_row(Bf16* c, float* sums, std::int64_t n, const Finish& finish);

// c (m,n), without gaps, = a · b, finished.
void matmul(const PackedKernels& kernels, const Parallel& parallel, Bf16* c, MatrixView<Bf16> a,
            MatrixView<Bf16> b, MatmulSize size, const Finish& finish);

// The grid of parts, `rows` × `columns` ≤ threads, in which the largest part of a product takes the least
// time.
struct Division {
  std::int64_t rows, columns;
};
Division division_of(const PackedKernels& kernels, int threads, std::int64_t m, std::int64_t n);

}  // namespace stagegpt::packed
