// Tiles of flash attention: rows of a head, copied to shared memory and written back. Products of tiles are
// in attention_fma.cuh and attention_mma.cuh.
#pragma once

#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/tiles.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// The rows of one head in global memory: T rows of HS elements, which are `ld` elements apart.
template <class Real>
struct RowsOfHead {
  Real* data;
  std::int64_t ld;
  int T, HS;
  bool vectors;  // whether rows can be read and written 16 bytes at a time
};

// Where the head of a block is, in the tensors of an attention.
struct HeadOfBlock {
  std::int64_t b, h;

  __device__ explicit HeadOfBlock(const AttentionSize& s) : b(blockIdx.x / s.NH), h(blockIdx.x % s.NH) {}

  // Index of row t in (B,NH,T).
  __device__ std::int64_t row(const AttentionSize& s, std::int64_t t) const {
    return (b * s.NH + h) * s.T + t;
  }
  // Rows in (B,T,NH,HS), part 0, or in part 0, 1 or 2 of (B,T,3,NH,HS).
  template <class Real>
  __device__ RowsOfHead<Real> rows(const AttentionSize& s, Real* data, bool vectors, int part = 0,
                                   int parts = 1) const {
    const std::int64_t ld = parts * s.channels();
    return {data + b * s.T * ld + part * s.channels() + h * s.HS, ld, static_cast<int>(s.T),
            static_cast<int>(s.HS), vectors};
  }
};

// Starts to copy: tile[r][c] = rows[first + r][c] for c < kColumns, zero beyond the head.
template <int kRows, int kColumns, class Shared, class Real>
__device__ void load_tile(const Tile<Shared>& tile, const RowsOfHead<const Real>& rows, int first) {
  constexpr int V = kVector<Real>;
  for (int e = V * static_cast<int>(threadIdx.x); e < kRows * kColumns;
       e += V * static_cast<int>(blockDim.x)) {
    const int r = e / kColumns, c = e % kColumns;
    const int columns = first + r < rows.T ? rows.HS - c : 0;  // of the head, from here on
    const Real* from = columns > 0 ? rows.data + (first + r) * rows.ld + c : rows.data;
    if (rows.vectors) {
      cp_async_16(tile.memory, tile.at(r, c), from, columns > 0);
    } else {
      for (int i = 0; i < V; ++i) tile.memory[tile.at(r, c + i)] = i < columns ? from[i] : Real{};
    }
  }
}

// Writes a product, times `factor`, to rows first, first + 1, … of a head. Passes through `tile`, of which
// each warp uses the rows of its own part of the product.
template <int kColumns, class Product, class Shared, class Real>
__device__ void write_product(const RowsOfHead<Real>& rows, bool accumulate, const Product& product,
                              float factor, const Tile<Shared>& tile, int first) {
  constexpr int V = kVector<Real>;
  __syncwarp();  // the warp has finished with its rows of the tile
  STAGEGPT_UNROLL for (int i = 0; i < Product::kThreadRows; ++i) {
    STAGEGPT_UNROLL for (int j = 0; j < Product::kThreadColumns; ++j) {
      tile.memory[tile.at(Product::row(i), Product::column(j))] = rounded_to<Real>(factor * product.at(i, j));
    }
  }
  __syncwarp();
  for (int e = V * lane_index(); e < Product::kWarpRows * kColumns; e += V * kWarp) {
    const int r = Product::first_row() + e / kColumns, c = e % kColumns;
    const int columns = first + r < rows.T ? rows.HS - c : 0;
    if (columns <= 0) continue;
    Real* to = rows.data + (first + r) * rows.ld + c;
    Floats<V> f = {};
    if (accumulate && rows.vectors) f = load<V>(static_cast<const Real*>(to), 0);
    for (int i = 0; i < V; ++i) f.v[i] += as_float(static_cast<Real>(tile.memory[tile.at(r, c + i)]));
    if (rows.vectors) {
      store<V>(to, 0, f);
    } else {
      for (int i = 0; i < V && i < columns; ++i) put(to, i, f.v[i], accumulate);
    }
  }
}

}  // namespace stagegpt::gpu
