// The parts of flash attention: tiles in shared memory, and products of two tiles in registers.
//
// Of a product with 4·n rows, 16 threads of a warp compute four rows; thread x of them has the columns x,
// x + 16, and so on. So a row is reduced by shuffles among 16 lanes.
#pragma once

#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

inline constexpr int kTileKeys = 32;
inline constexpr int kGroup = 16;  // threads that share rows of a product
inline constexpr int kGroupRows = 4;

// Threads of a block that computes products with this number of rows.
constexpr int tile_threads(int rows) { return rows / kGroupRows * kGroup; }

// A matrix in shared memory. `stride` is a multiple of 4 for load4, but not of 32, to avoid bank conflicts.
template <class Shared>
struct Tile {
  const Shared& memory;
  int begin, stride;

  __device__ int at(int row, int column) const { return begin + row * stride + column; }
};

// Row stride of tiles with `columns` columns, a multiple of 16.
constexpr int tile_stride(int columns) { return columns + 4; }

// The rows of one head in global memory: T rows of HS floats, which are `ld` floats apart.
struct HeadMatrix {
  const float* data;
  std::int64_t ld, T, HS;
  bool fours;  // whether rows can be read four floats at a time

  // Four elements of a row, zero beyond the matrix.
  __device__ Float4 load(int row, int column) const {
    if (row >= T || column >= HS) return Float4{0, 0, 0, 0};
    const float* from = data + row * ld;
    if (fours) return load4(from, column);
    const auto one = [&](int c) { return c < HS ? from[c] : 0.0f; };
    return Float4{one(column), one(column + 1), one(column + 2), one(column + 3)};
  }
};

// Where the head of a block is, in the tensors of an attention.
struct HeadOfBlock {
  std::int64_t b, h;

  __device__ explicit HeadOfBlock(const AttentionSize& s) : b(blockIdx.x / s.NH), h(blockIdx.x % s.NH) {}

  // Offset of row t in (B,T,NH,HS), part 0, or in part 0, 1 or 2 of (B,T,3,NH,HS).
  __device__ std::int64_t begin(const AttentionSize& s, std::int64_t t, int part = 0, int parts = 1) const {
    return ((b * s.T + t) * parts + part) * s.channels() + h * s.HS;
  }
  // Index of row t in (B,NH,T).
  __device__ std::int64_t row(const AttentionSize& s, std::int64_t t) const {
    return (b * s.NH + h) * s.T + t;
  }
  __device__ HeadMatrix matrix(const AttentionSize& s, const float* data, bool fours, int part = 0,
                               int parts = 1) const {
    return {data + begin(s, 0, part, parts), parts * s.channels(), s.T, s.HS, fours};
  }
};

// tile[r][c] = matrix[first + r][c] for c < kColumns.
template <int kRows, int kColumns, class Shared>
__device__ void load_tile(const Tile<Shared>& tile, const HeadMatrix& matrix, int first) {
  for (int e = 4 * static_cast<int>(threadIdx.x); e < kRows * kColumns;
       e += 4 * static_cast<int>(blockDim.x)) {
    const int r = e / kColumns, c = e % kColumns;
    store4(tile.memory, tile.at(r, c), matrix.load(first + r, c));
  }
}

// This thread's place in a product.
__device__ inline int product_row() { return static_cast<int>(threadIdx.x) / kGroup * kGroupRows; }
__device__ inline int product_column() { return static_cast<int>(threadIdx.x) % kGroup; }

// out = a · bᵀ: element (i, j) of this thread is row product_row() + i of a times row product_column() + 16j
// of b, over the first `columns` columns.
template <class Shared>
__device__ void multiply_rows(float (&out)[kGroupRows][2], const Tile<Shared>& a, const Tile<Shared>& b,
                              int columns) {
  const int row = product_row(), column = product_column();
  for (auto& sums : out) sums[0] = sums[1] = 0;
  for (int c = 0; c < columns; c += 4) {
    const Float4 right[2] = {load4(b.memory, b.at(column, c)), load4(b.memory, b.at(column + kGroup, c))};
    for (int i = 0; i < kGroupRows; ++i) {
      const Float4 left = load4(a.memory, a.at(row + i, c));
      for (int j = 0; j < 2; ++j) {
        out[i][j] += left.x * right[j].x;
        out[i][j] += left.y * right[j].y;
        out[i][j] += left.z * right[j].z;
        out[i][j] += left.w * right[j].w;
      }
    }
  }
}

// out += p · b, over the 32 columns of p.
template <int kColumns, class Shared>
__device__ void add_product(float (&out)[kGroupRows][kColumns], const Tile<Shared>& p,
                            const Tile<Shared>& b) {
  const int row = product_row(), column = product_column();
  for (int k0 = 0; k0 < kTileKeys; k0 += 4) {
    float left[kGroupRows][4];
    for (int i = 0; i < kGroupRows; ++i) {
      const Float4 four = load4(p.memory, p.at(row + i, k0));
      left[i][0] = four.x, left[i][1] = four.y, left[i][2] = four.z, left[i][3] = four.w;
    }
    for (int k = 0; k < 4; ++k) {
      for (int j = 0; j < kColumns; ++j) {
        const float right = b.memory[b.at(k0 + k, column + kGroup * j)];
        for (int i = 0; i < kGroupRows; ++i) out[i][j] += left[i][k] * right;
      }
    }
  }
}

// Writes this thread's elements of a product into rows `first`, first + 1, … of a head.
template <int kColumns>
__device__ void write_product(float* out, const HeadOfBlock& head, const AttentionSize& s, int part,
                              int parts, const float (&product)[kGroupRows][kColumns], int first,
                              bool accumulate) {
  for (int i = 0; i < kGroupRows; ++i) {
    const int t = first + product_row() + i;
    for (int j = 0; j < kColumns; ++j) {
      const int c = product_column() + kGroup * j;
      if (t < s.T && c < s.HS) put(out, head.begin(s, t, part, parts) + c, product[i][j], accumulate);
    }
  }
}

}  // namespace stagegpt::gpu
