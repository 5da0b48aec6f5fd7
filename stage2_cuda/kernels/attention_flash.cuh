// Flash attention (Dao et al., arXiv:2205.14135), formulas in attention.cuh: a block has one tile of queries
// and walks over the keys, 32 at a time, so scores exist only in shared memory and registers.
//
// The softmax is computed online. After some keys, m[t] is the maximum of their scores, l[t] = Σ_u exp(s - m)
// and o[t] = Σ_u f·exp(s - m)·v[u]; the next keys may raise m to m', and l and o are multiplied by
// exp(m - m'). At the end out = o/l, lse = m + log l.
//
// The backward computes the scores a second time, p = exp(s - lse): once with a block per tile of queries,
// for dq, and once with a block per tile of keys, for dk and dv. Both need scores and dp, so there are seven
// products of tiles instead of five. But every element is written by one thread, which adds in a fixed order:
// the same bits in every run. Memory beyond input and output: D, (B,NH,T).
#pragma once

#include <type_traits>

#include "stage2_cuda/kernels/attention_tiles.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// Queries of a block in the forward. In the backward, a tile of queries has as many rows as one of keys.
inline constexpr int kForwardQueries = 64;
// The largest head size: kGroup threads hold four rows of a head in registers.
inline constexpr std::int64_t kFlashHeadSize = 128;

// What every kernel needs. `vectors`: rows of heads can be read 16 bytes at a time.
struct FlashCall {
  AttentionSize s;
  float scale;
  DropoutMap dropout;
  bool vectors;
};

// Multiplies this thread's elements of p, at query t0 + row and key u0 + column, by their dropout factors.
template <class Shared>
__device__ void drop(const Tile<Shared>& p, int t0, int u0, const HeadOfBlock& head, const FlashCall& call) {
  for (int i = 0; i < kGroupRows; ++i) {
    const int row = product_row() + i;
    for (int j = 0; j < 2; ++j) {
      const int column = product_column() + kGroup * j;
      const float f = dropout_factor(call.dropout, head.row(call.s, t0 + row) * call.s.T + u0 + column);
      p.memory[p.at(row, column)] *= f;
    }
  }
}

// m, l and o of this thread's rows. Of l it has the part of its columns.
template <int kHS>
struct OnlineSoftmax {
  float max[kGroupRows], sum[kGroupRows] = {}, out[kGroupRows][kHS / kGroup] = {};

  __device__ OnlineSoftmax() {
    for (float& m : max) m = -INFINITY;
  }

  // Adds keys u0, u0 + 1, … to l, and writes exp(s - m) to p. Row 0 of the tile is query t0.
  template <class Shared>
  __device__ void add_keys(const Tile<Shared>& p, const float (&product)[kGroupRows][2], float scale, int t0,
                           int u0) {
    STAGEGPT_UNROLL for (int i = 0; i < kGroupRows; ++i) {
      const int t = t0 + product_row() + i, u = u0 + product_column();
      const float score[2] = {u <= t ? scale * product[i][0] : -INFINITY,
                              u + kGroup <= t ? scale * product[i][1] : -INFINITY};
      const float new_max = fmaxf(max[i], warp_max<kGroup>(fmaxf(score[0], score[1])));
      const float kept = expf(max[i] - new_max);  // 0 at the first keys
      max[i] = new_max;
      sum[i] *= kept;
      for (float& o : out[i]) o *= kept;
      for (int j = 0; j < 2; ++j) {
        const float weight = u + kGroup * j <= t ? expf(score[j] - new_max) : 0.0f;
        sum[i] += weight;
        p.memory[p.at(product_row() + i, product_column() + kGroup * j)] = weight;
      }
    }
  }
};

template <class Real, int kHS>
static __global__ void __launch_bounds__(tile_threads(kForwardQueries), kHS <= 64 ? 2 : 1)
    flash_forward_kernel(Real* out, float* lse, const Real* qkv, FlashCall call) {
  STAGEGPT_DYNAMIC_SHARED(float, memory);
  constexpr int kStride = tile_stride(kHS), kKeysBegin = kForwardQueries * kStride;
  const Tile q{memory, 0, kStride}, k{memory, kKeysBegin, kStride},
      v{memory, kKeysBegin + kTileKeys * kStride, kStride},
      p{memory, kKeysBegin + 2 * kTileKeys * kStride, tile_stride(kTileKeys)};
  const AttentionSize& s = call.s;
  const HeadOfBlock head(s);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kForwardQueries;
  load_tile<kForwardQueries, kHS>(q, head.matrix(s, qkv, call.vectors, 0, 3), first);

  OnlineSoftmax<kHS> rows;
  for (int u0 = 0; u0 < first + kForwardQueries && u0 < s.T; u0 += kTileKeys) {
    __syncthreads();  // all have finished with the tiles before
    load_tile<kTileKeys, kHS>(k, head.matrix(s, qkv, call.vectors, 1, 3), u0);
    load_tile<kTileKeys, kHS>(v, head.matrix(s, qkv, call.vectors, 2, 3), u0);
    __syncthreads();
    float product[kGroupRows][2];
    multiply_rows(product, q, k, static_cast<int>(s.HS));
    rows.add_keys(p, product, call.scale, first, u0);
    if (call.dropout.p > 0) drop(p, first, u0, head, call);
    __syncwarp();  // a warp reads only the rows of p that it has written
    add_product(rows.out, p, v);
  }

  for (int i = 0; i < kGroupRows; ++i) {
    const float l = warp_sum<kGroup>(rows.sum[i]);
    for (float& o : rows.out[i]) o /= l;
    const int t = first + product_row() + i;
    if (t < s.T && product_column() == 0) lse[head.row(s, t)] = rows.max[i] + logf(l);
  }
  write_product(out, head, s, 0, 1, rows.out, first, false);
}

// D (B,NH,T), one warp per row.
template <class Real>
static __global__ void flash_dots_kernel(float* dots, const Real* dout, const Real* out, AttentionSize s) {
  const std::int64_t row = warp_index(), t = row % s.T, head = row / s.T;
  if (row >= s.rows()) return;
  const std::int64_t begin = ((head / s.NH * s.T + t) * s.NH + head % s.NH) * s.HS;
  float sum = 0;
  for (std::int64_t i = lane_index(); i < s.HS; i += kWarp)
    sum += as_float(dout[begin + i]) * as_float(out[begin + i]);
  sum = warp_sum(sum);
  if (lane_index() == 0) dots[row] = sum;
}

// The two matrices of the backward that are multiplied by rows of heads, at query t and key u.
struct ScoreGradient {
  float fp = 0, ds = 0;

  __device__ ScoreGradient(float score, float dp, int t, int u, const HeadOfBlock& head, const float* lse,
                           const float* dots, const FlashCall& call) {
    if (u > t || t >= call.s.T) return;
    const std::int64_t row = head.row(call.s, t);
    const float p = expf(call.scale * score - lse[row]);
    const float f = dropout_factor(call.dropout, row * call.s.T + u);
    fp = f * p;
    ds = call.scale * p * (f * dp - dots[row]);
  }
};

// dq of one tile of queries.
template <class Real, int kHS>
static __global__ void flash_backward_queries_kernel(Real* dqkv, bool accumulate, const Real* dout,
                                                     const float* lse, const float* dots, const Real* qkv,
                                                     FlashCall call) {
  STAGEGPT_DYNAMIC_SHARED(float, memory);
  constexpr int kStride = tile_stride(kHS), kSize = kTileKeys * kStride;
  const Tile q{memory, 0, kStride}, dy{memory, kSize, kStride}, k{memory, 2 * kSize, kStride},
      v{memory, 3 * kSize, kStride}, ds{memory, 4 * kSize, tile_stride(kTileKeys)};
  const AttentionSize& s = call.s;
  const HeadOfBlock head(s);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kTileKeys;
  load_tile<kTileKeys, kHS>(q, head.matrix(s, qkv, call.vectors, 0, 3), first);
  load_tile<kTileKeys, kHS>(dy, head.matrix(s, dout, call.vectors), first);

  float dq[kGroupRows][kHS / kGroup] = {};
  for (int u0 = 0; u0 <= first; u0 += kTileKeys) {
    __syncthreads();  // all have finished with the tiles before
    load_tile<kTileKeys, kHS>(k, head.matrix(s, qkv, call.vectors, 1, 3), u0);
    load_tile<kTileKeys, kHS>(v, head.matrix(s, qkv, call.vectors, 2, 3), u0);
    __syncthreads();
    float score[kGroupRows][2], dp[kGroupRows][2];
    multiply_rows(score, q, k, static_cast<int>(s.HS));
    multiply_rows(dp, dy, v, static_cast<int>(s.HS));
    STAGEGPT_UNROLL for (int i = 0; i < kGroupRows; ++i) {
      for (int j = 0; j < 2; ++j) {
        const int row = product_row() + i, column = product_column() + kGroup * j;
        const ScoreGradient gradient(score[i][j], dp[i][j], first + row, u0 + column, head, lse, dots, call);
        ds.memory[ds.at(row, column)] = gradient.ds;
      }
    }
    __syncwarp();  // a warp reads only the rows of ds that it has written
    add_product(dq, ds, k);
  }
  write_product(dqkv, head, s, 0, 3, dq, first, accumulate);
}

// dk and dv of one tile of keys. Rows of scores are keys here, columns are queries.
template <class Real, int kHS>
static __global__ void flash_backward_keys_kernel(Real* dqkv, bool accumulate, const Real* dout,
                                                  const float* lse, const float* dots, const Real* qkv,
                                                  FlashCall call) {
  STAGEGPT_DYNAMIC_SHARED(float, memory);
  constexpr int kStride = tile_stride(kHS), kSize = kTileKeys * kStride;
  constexpr int kScoreStride = tile_stride(kTileKeys);
  const Tile k{memory, 0, kStride}, v{memory, kSize, kStride}, q{memory, 2 * kSize, kStride},
      dy{memory, 3 * kSize, kStride}, fp{memory, 4 * kSize, kScoreStride},
      ds{memory, 4 * kSize + kTileKeys * kScoreStride, kScoreStride};
  const AttentionSize& s = call.s;
  const HeadOfBlock head(s);
  const int first = static_cast<int>(blockIdx.y) * kTileKeys;
  load_tile<kTileKeys, kHS>(k, head.matrix(s, qkv, call.vectors, 1, 3), first);
  load_tile<kTileKeys, kHS>(v, head.matrix(s, qkv, call.vectors, 2, 3), first);

  float dk[kGroupRows][kHS / kGroup] = {}, dv[kGroupRows][kHS / kGroup] = {};
  for (int t0 = first; t0 < s.T; t0 += kTileKeys) {
    __syncthreads();  // all have finished with the tiles before
    load_tile<kTileKeys, kHS>(q, head.matrix(s, qkv, call.vectors, 0, 3), t0);
    load_tile<kTileKeys, kHS>(dy, head.matrix(s, dout, call.vectors), t0);
    __syncthreads();
    float score[kGroupRows][2], dp[kGroupRows][2];
    multiply_rows(score, k, q, static_cast<int>(s.HS));
    multiply_rows(dp, v, dy, static_cast<int>(s.HS));
    STAGEGPT_UNROLL for (int i = 0; i < kGroupRows; ++i) {
      for (int j = 0; j < 2; ++j) {
        const int row = product_row() + i, column = product_column() + kGroup * j;
        const ScoreGradient gradient(score[i][j], dp[i][j], t0 + column, first + row, head, lse, dots, call);
        fp.memory[fp.at(row, column)] = gradient.fp;
        ds.memory[ds.at(row, column)] = gradient.ds;
      }
    }
    __syncwarp();  // a warp reads only the rows of fp and ds that it has written
    add_product(dv, fp, dy);
    add_product(dk, ds, q);
  }
  write_product(dqkv, head, s, 1, 3, dk, first, accumulate);
  write_product(dqkv, head, s, 2, 3, dv, first, accumulate);
}

// Calls run(kHS), with kHS a constant: the smallest of the compiled head sizes that holds HS columns.
template <class Run>
void with_head_size(std::int64_t HS, const Run& run) {
  if (HS <= 32) return run(std::integral_constant<int, 32>());
  if (HS <= 64) return run(std::integral_constant<int, 64>());
  if (HS <= 96) return run(std::integral_constant<int, 96>());
  check(HS <= kFlashHeadSize, "flash attention: heads of ", HS, " channels");
  return run(std::integral_constant<int, 128>());
}

// A grid of blocks for `rows` queries or keys each.
inline dim3 attention_grid(AttentionSize s, int rows) {
  return dim3(static_cast<unsigned>(s.B * s.NH), static_cast<unsigned>(parts(s.T, rows)));
}

template <class Real>
void flash_forward(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                   AttentionSize s) {
  const FlashCall call{s, s.scale(), DropoutMap(dropout), in_vectors<kVector<Real>>(s.HS, qkv)};
  with_head_size(s.HS, [&](auto head_size) {
    constexpr int kHS = head_size;
    constexpr std::size_t kFloats =
        (kForwardQueries + 2 * kTileKeys) * tile_stride(kHS) + kForwardQueries * tile_stride(kTileKeys);
    launch<flash_forward_kernel<Real, kHS>>(attention_grid(s, kForwardQueries),
                                            dim3(tile_threads(kForwardQueries)), kFloats * sizeof(float),
                                            stream, out, lse, qkv, call);
  });
}

// `dots` has B·NH·T elements.
template <class Real>
void flash_backward(StreamHandle stream, Real* dqkv, bool accumulate, const Real* dout, const Real* out,
                    const float* lse, const Real* qkv, const Dropout& dropout, AttentionSize s, float* dots) {
  const FlashCall call{s, s.scale(), DropoutMap(dropout), in_vectors<kVector<Real>>(s.HS, qkv, dout)};
  launch<flash_dots_kernel<Real>>(blocks(s.rows(), kThreads / kWarp), dim3(kThreads), 0, stream, dots, dout,
                                  out, s);
  with_head_size(s.HS, [&](auto head_size) {
    constexpr int kHS = head_size, kScores = kTileKeys * tile_stride(kTileKeys);
    constexpr std::size_t kFloats = 4 * kTileKeys * tile_stride(kHS) + kScores;
    const dim3 grid = attention_grid(s, kTileKeys), block(tile_threads(kTileKeys));
    launch<flash_backward_queries_kernel<Real, kHS>>(grid, block, kFloats * sizeof(float), stream, dqkv,
                                                     accumulate, dout, lse, dots, qkv, call);
    launch<flash_backward_keys_kernel<Real, kHS>>(grid, block, (kFloats + kScores) * sizeof(float), stream,
                                                  dqkv, accumulate, dout, lse, dots, qkv, call);
  });
}

}  // namespace stagegpt::gpu
