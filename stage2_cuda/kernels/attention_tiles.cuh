// The parts of flash attention: tiles in shared memory, and products of two tiles in registers.
//
// Of a product with 4·n rows, 16 threads of a warp compute four rows; thread x of them has the columns x,
// x + 16, and so on. So a row is reduced by shuffles among 16 lanes.
#pragma once

#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/vector.cuh"

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

// The rows of one head in global memory: T rows of HS elements, which are `ld` elements apart.
template <class Real>
struct HeadMatrix {
  const Real* data;
  std::int64_t ld, T, HS;
  bool vectors;  // whether rows can be read 16 bytes at a time

  // kVector elements of a row, zero beyond the matrix.
  __device__ Floats<kVector<Real>> load(int row, int column) const {
    Floats<kVector<Real>> f = {};
    if (row >= T || column >= HS) return f;
    const Real* from = data + row * ld;
    if (vectors) return gpu::load<kVector<Real>>(from, column);
    STAGEGPT_UNROLL for (int i = 0; i < kVector<Real>; ++i) {
      if (column + i < HS) f.v[i] = as_float(from[column + i]);
    }
    return f;
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
  template <class Real>
  __device__ HeadMatrix<Real> matrix(const AttentionSize& s, const Real* data, bool vectors, int part = 0,
                                     int parts = 1) const {
    return {data + begin(s, 0, part, parts), parts * s.channels(), s.T, s.HS, vectors};
  }
};

// tile[r][c] = matrix[first + r][c] for c < kColumns.
template <int kRows, int kColumns, class Shared, class Real>
__device__ void load_tile(const Tile<Shared>& tile, const HeadMatrix<Real>& matrix, int first) {
  constexpr int V = kVector<Real>;
  for (int e = V * static_cast<int>(threadIdx.x); e < kRows * kColumns;
       e += V * static_cast<int>(blockDim.x)) {
    const int r = e / kColumns, c = e % kColumns;
    const Floats<V> f = matrix.load(first + r, c);
    STAGEGPT_UNROLL for (int i = 0; i < V; i += 4)
        store4(tile.memory, tile.at(r, c + i), Float4{f.v[i], f.v[i + 1], f.v[i + 2], f.v[i + 3]});
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
template <int kColumns, class Real>
__device__ void write_product(Real* out, const HeadOfBlock& head, const AttentionSize& s, int part, int parts,
                              const float (&product)[kGroupRows][kColumns], int first, bool accumulate) {
  for (int i = 0; i < kGroupRows; ++i) {
    const int t = first + product_row() + i;
    for (int j = 0; j < kColumns; ++j) {
      const int c = product_column() + kGroup * j;
      if (t < s.T && c < s.HS) put(out, head.begin(s, t, part, parts) + c, product[i][j], accumulate);
    }
  }
}

}  // namespace stagegpt::gpu
