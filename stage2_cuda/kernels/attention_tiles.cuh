// Tiles of flash attention: rows of a head, copied to shared memory and written back, and the order of
// blocks. Products of tiles are in attention_fma.cuh and attention_mma.cuh.
#pragma once

#include "stage2_cuda/kernels/attention.cuh"
#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/tiles.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// The rows of one head in global memory: T rows of HS elements, which are `ld` elements apart.
template <class Real>
struct RowsOfHead {
  Real* data;
  int ld, T, HS;
  bool vectors;  // whether rows can be read and written 16 bytes at a time

  __device__ Real* row(int t) const { return data + static_cast<std::int64_t>(t) * ld; }
};

// Where a head is, in the tensors of an attention.
struct HeadOfBlock {
  int index, b, h;

  __device__ explicit HeadOfBlock(const AttentionSize& s) : HeadOfBlock(s, static_cast<int>(blockIdx.x)) {}
  __device__ HeadOfBlock(const AttentionSize& s, int head)
      : index(head), b(head / static_cast<int>(s.NH)), h(head % static_cast<int>(s.NH)) {}

  // Index of row t in (B,NH,T).
  __device__ std::int64_t row(const AttentionSize& s, std::int64_t t) const { return index * s.T + t; }
  // Rows in (B,T,NH,HS), part 0, or in part 0, 1 or 2 of (B,T,3,NH,HS).
  template <class Real>
  __device__ RowsOfHead<Real> rows(const AttentionSize& s, Real* data, bool vectors, int part = 0,
                                   int parts = 1) const {
    const std::int64_t ld = parts * s.channels();
    return {data + b * s.T * ld + part * s.channels() + h * s.HS, static_cast<int>(ld), static_cast<int>(s.T),
            static_cast<int>(s.HS), vectors};
  }
};

// The order of blocks in a one-dimensional grid: a block for each of `tiles` tiles of each head. Heads come
// in groups whose rows fit into the L2 cache together; a group begins with rank 0 of all its heads, then
// rank 1.
struct BlockOrder {
  int tiles, group;
};

// Which head this block has, and which of its tiles by rank. Rank 0 has the most work.
struct TileOfBlock {
  int head, rank;

  __device__ TileOfBlock(const AttentionSize& s, const BlockOrder& order) {
    const int block = static_cast<int>(blockIdx.x), heads = static_cast<int>(s.B * s.NH);
    const int first = block / (order.group * order.tiles) * order.group;  // head of the group
    const int members = heads - first < order.group ? heads - first : order.group;
    const int in_group = block - first * order.tiles;
    rank = in_group / members;
    head = first + in_group % members;
  }
};

// A tile with rows of kHS columns, in chunks of 16 bytes, which are kStride elements apart. Eight rows of one
// chunk, which are read at once, have to be in different banks: rows are padded, or, if kStride is kHS, the
// chunks of a row are permuted by its number (ldmatrix; without padding, more blocks fit into an SM).
template <class Real, int kHS, int kStride, class Shared>
struct HeadTile {
  static constexpr int kChunk = kVector<Real>, kChunks = kHS / kChunk;
  const Shared& memory;
  int begin;

  __device__ int at(int row, int column) const {
    if constexpr (kStride != kHS) {
      return begin + row * kStride + column;
    } else {
      const unsigned r = static_cast<unsigned>(row), c = static_cast<unsigned>(column);
      const unsigned chunk = c / kChunk ^ (kChunks % 8 == 0 ? r % 8 : r / 2 % 4);
      return begin + static_cast<int>(r * kHS + chunk * kChunk + c % kChunk);
    }
  }
  // The tile from this row on, a multiple of eight.
  __device__ HeadTile from_row(int row) const { return {memory, begin + row * kStride}; }
};

// How a kernel divides its work: a block has a tile of `rows` rows, in parts of a warp, and walks over other
// rows, `step` at a time, of which a warp multiplies `chunk` at a time. An SM should have `blocks` blocks at
// least, which limits registers. `kept`: the left operands that do not change stay in registers.
struct FlashShape {
  int rows, step, chunk, blocks;
  bool kept = false;
};

// Starts to copy: tile[r][c] = rows[first + r][c], zero beyond the head. The loop is not unrolled: the
// addresses of all copies would take registers from products.
template <int kRows, class Tile, class Real>
__device__ void load_tile(const Tile& tile, const RowsOfHead<const Real>& rows, int first) {
  const auto copy = [&](int e, const auto& to_tile) {
    const int r = e / Tile::kChunks, c = e % Tile::kChunks * Tile::kChunk;
    const bool inside = first + r < rows.T && c < rows.HS;
    to_tile(tile.at(r, c), inside ? rows.row(first + r) + c : rows.data, inside ? rows.HS - c : 0);
  };
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  constexpr int kChunks = kRows * Tile::kChunks;
  if (rows.vectors) {
    for (int e = thread; e < kChunks; e += threads)
      copy(e,
           [&](int to, const Real* from, int columns) { cp_async_16(tile.memory, to, from, columns > 0); });
    return;
  }
  for (int e = thread; e < kChunks; e += threads) {
    copy(e, [&](int to, const Real* from, int columns) {
      for (int i = 0; i < Tile::kChunk; ++i) tile.memory[to + i] = i < columns ? from[i] : Real{};
    });
  }
}

// Calls use(element, i, j) for the elements of a thread's part of a product.
template <class Product, class Use>
__device__ void for_each(Product& product, const Use& use) {
  STAGEGPT_UNROLL for (int i = 0; i < Product::kThreadRows; ++i) {
    STAGEGPT_UNROLL for (int j = 0; j < Product::kThreadColumns; ++j) use(product.at(i, j), i, j);
  }
}

// Writes a product, times `factor`, to rows first, first + 1, … of a head. Passes through `tile`, of which
// each warp uses the rows of its own part of the product.
template <class Product, class Tile, class Real>
__device__ void write_product(const RowsOfHead<Real>& rows, bool accumulate, const Product& product,
                              float factor, const Tile& tile, int first) {
  constexpr int V = kVector<Real>;
  __syncwarp();  // the warp has finished with its rows of the tile
  for_each(product, [&](float value, int i, int j) {
    tile.memory[tile.at(Product::row(i), Product::column(j))] = rounded_to<Real>(factor * value);
  });
  __syncwarp();
  for (int e = lane_index(); e < Product::kWarpRows * Tile::kChunks; e += kWarp) {
    const int r = Product::first_row() + e / Tile::kChunks, c = e % Tile::kChunks * V;
    const int columns = first + r < rows.T ? rows.HS - c : 0;
    if (columns <= 0) continue;
    Real* to = rows.row(first + r) + c;
    Floats<V> f = {};
    if (accumulate && rows.vectors) f = load<V>(static_cast<const Real*>(to), 0);
    const Floats<V> own = load_shared<Real>(tile.memory, tile.at(r, c));
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f.v[i] += own.v[i];
    if (rows.vectors) {
      store<V>(to, 0, f);
    } else {
      for (int i = 0; i < V && i < columns; ++i) put(to, i, f.v[i], accumulate);
    }
  }
}

}  // namespace stagegpt::gpu
