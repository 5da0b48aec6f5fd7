// The inner parts of the packed GEMM (matmul_packed.h), which are compiled once for each instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "common/tensor/dtype.h"
#include "stage0_serial/blas/matrix_view.h"

namespace stagegpt {

// The columns that are multiplied next, as lines of memory: the kernel asks for them while it multiplies the
// present ones.
struct NextColumns {
  const char* begin;
  std::int64_t lines;          // 0: there are none
  std::int64_t bytes, stride;  // of a line; from one line to the next, in bytes
};

// What is multiplied: elements as they are, or rounded to bf16. Products are added in f32 in both cases.
enum class Factors { f32, bf16 };

// How a matrix with elements of this type is packed: in words of 32 bits. A word has one step of k, or two in
// bf16, if an instruction multiplies pairs.
template <class Element>
struct Packing {
  // Packs a (m,k) as panels of `rows` rows, one after another. In a panel, packed[i·rows + r] = word i of row
  // r; rows that are missing in the last become zeros.
  void (*rows)(float* packed, MatrixView<Element> a, std::int64_t m, std::int64_t k);
  // Packs at most `columns` columns of b (k,n): packed[i·columns + j] = word i of column j. Missing
  // columns become zeros.
  void (*columns)(float* packed, MatrixView<Element> b, std::int64_t n, std::int64_t k);
};

struct PackedKernels {
  const char* name;  // of the instruction set, such as "AVX-512"
  Factors factors;
  bool (*can_run)();     // on this processor
  std::int64_t rows;     // of a tile of c
  std::int64_t columns;  // of a tile of c
  std::int64_t depth;    // the largest k of a block: a packed panel stays in a cache
  int steps;             // of k in a word of 32 bits: 1, or 2 in bf16

  Packing<float> floats;
  Packing<Bf16> halves;
  // One column of tiles: c (m,n) = a · b, or += with `accumulate`; n ≤ columns. a: ceil(m / rows) packed
  // panels, one after another; b: one packed panel. Rows of c are ldc elements apart.
  void (*multiply)(float* c, std::int64_t ldc, const float* a, const float* b, MatmulSize size,
                   bool accumulate, const NextColumns& next);
  // Does `count` times `rows`·`columns`·`steps` multiply-adds on values in registers, without access to
  // memory. Returns the sum of all sums, to each of which it adds `count` times 1/4.
  float (*multiply_adds)(std::int64_t count);

  // By an instruction of its own, which multiplies several steps.
  bool multiplies_bf16() const { return steps > 1; }
};

// All that this program contains, the fastest first.
std::span<const PackedKernels* const> all_packed_kernels();
// The fastest that this processor can run.
const PackedKernels& packed_kernels(Factors factors);

}  // namespace stagegpt
