// GEMM in bf16 for compute capability 9.0: the steps after matmul_mma.cuh. c[m][n] = Σ_k a[m][k]·b[k][n],
// with sums in f32.
//
// Tensor cores read their operands from shared memory by themselves. A warpgroup (four warps) starts
// wgmma.m64nNk16, and waits for it later: the operands take no registers and no ldmatrix, and 2·64·N·16 FLOP
// take one instruction.
//
//                        R × C      wgmma        what is new
//   v7 wgmma             128 × 128  64 × 128     tensor cores read shared memory
//   v8 a ring of tiles   128 × 128  64 × 128     one thread starts all copies, several tiles ahead
//   v9 persistent        128 × 256  64 × 256     a block computes many tiles: the copies for the next one are
//                                                under way while the sums of this one are written
//
// What each one does, what bounds it, and a prediction for each: docs/hopper.md.
//
// The forms of a training step: x·wᵀ forward, dout·w for dx, doutᵀ·x for dw. An operand that is stored as its
// transpose is copied in the same boxes of 64 × 64, and wgmma is told that rows of the tile are its columns.
//
// Every sum is computed in a fixed order, on any number of multiprocessors. A long sum over few tiles (dw) is
// divided into parts, so that all multiprocessors have work; the parts are added in order.
#pragma once

#include "stage2_cuda/gemm.h"
#include "stage2_cuda/kernels/activation.cuh"
#include "stage2_cuda/kernels/wgmma.cuh"

namespace stagegpt::gpu {

// A product without its pointers, in tiles of c. Its sums over k are in `splits` parts, each over `steps`
// tiles; the last may have fewer.
struct WgmmaShape {
  std::int64_t ldc;
  int m, n, row_tiles, column_tiles, all_steps, splits, steps;
  bool accumulate;
  Epilogue epilogue;

  __host__ __device__ int work() const { return row_tiles * column_tiles * splits; }
};

// A part of the sums of a tile of c, which begins at (row, column).
struct WorkOfProduct {
  int row, column, split, first_step, end_step;
};

// Part `index` of the work. Neighbours are in up to 16 rows of tiles, so that blocks that run at the same
// time find many of their operands in the L2 cache.
template <class Sizes>
__device__ WorkOfProduct work_at(int index, const WgmmaShape& s) {
  constexpr int kRows = 16;
  const int tiles = s.row_tiles * s.column_tiles, split = index / tiles, tile = index % tiles;
  const int group = tile / (kRows * s.column_tiles), in_group = tile % (kRows * s.column_tiles);
  const int rows = s.row_tiles - kRows * group < kRows ? s.row_tiles - kRows * group : kRows;
  const int first = split * s.steps, end = first + s.steps;
  return {Sizes::R * (kRows * group + in_group % rows), Sizes::C * (in_group / rows), split, first,
          end < s.all_steps ? end : s.all_steps};
}

template <int kWarpgroups_, int C_, int kStages_, bool kPersistent_>
struct WgmmaSizes {
  static constexpr int kWarpgroups = kWarpgroups_, R = kTileRows * kWarpgroups, C = C_, kStages = kStages_;
  static constexpr bool kPersistent = kPersistent_;
  static constexpr int kThreads = kWarpgroup * (kWarpgroups + 1);
  using Sums = AccumulatorOf<C>;  // of a warpgroup
  using TilesOfB = WideTile<C / 64>;
  struct Stage {
    SharedTile a[kWarpgroups];
    TilesOfB b;
  };
  struct Memory {
    Stage stage[kStages];
    Barrier full[kStages], empty[kStages];
  };
};
using WgmmaRing = WgmmaSizes<2, 128, 6, false>;
using WgmmaPersistent = WgmmaSizes<2, 256, 4, true>;

template <bool kRows, class Tile>
__device__ auto part_of(const Tile& tile, int k) {
  if constexpr (kRows) {
    return tile.rows(k);
  } else {
    return tile.columns(k);
  }
}

// A group of products: sums += a·b, over 64 k. Tiles of a transposed operand have rows k for a, columns k for
// b.
template <bool kATransposed, bool kBTransposed, class Sums, class TilesOfB>
__device__ void add_tiles(Sums& sums, const SharedTile& a, const TilesOfB& b) {
  STAGEGPT_UNROLL for (int k = 0; k < 4; ++k)
      wgmma(sums, part_of<kATransposed>(a, k), part_of<!kBTransposed>(b, k), true);
  wgmma_commit();
}

// Four neighbouring sums of row r of this thread's two, from columns 16j to 16j + 15. A thread has two of
// them, and gets the others from its neighbour, to which it gives two of four others: so that four lanes have
// the 32 bytes of a sector, not half of two.
template <int N>
__device__ Floats<4> four_sums(const AccumulatorOf<N>& sums, int r, int j) {
  const int e = 8 * j + 2 * r;  // and e + 4: eight columns further
  const bool odd = lane_index() % 2 != 0;
  const float first = __shfl_xor_sync(kAllLanes, odd ? sums[e] : sums[e + 4], 1),
              second = __shfl_xor_sync(kAllLanes, odd ? sums[e + 1] : sums[e + 5], 1);
  if (odd) return {{first, second, sums[e + 4], sums[e + 5]}};
  return {{sums[e], sums[e + 1], first, second}};
}
// The first of these columns.
__device__ inline int column_of_four() { return 4 * (lane_index() % 4 / 2 + 2 * (lane_index() % 2)); }

// Writes use(sums, at, given) for each four sums that exist in c. at: their place in c; given: the elements
// of `source` at this place or, if `of_columns`, of their columns; zeros without a source. The sums are those
// of 64 rows, the first of which is `row`, from `column` on. Four times four are under way at a time, because
// a read of global memory takes long.
template <class Result, int N, class Use>
__device__ void write_fours(Result* c, const Result* source, bool of_columns, const AccumulatorOf<N>& sums,
                            int row, int column, const WgmmaShape& s, const Use& use) {
  constexpr int kAtOnce = 4;
  const int left = column + column_of_four();
  STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
    const int m = row + accumulator_row(2 * r);
    const std::int64_t begin = m * s.ldc + left, from = of_columns ? left : begin;
    STAGEGPT_UNROLL for (int j = 0; j < N / 16; j += kAtOnce) {
      const auto exists = [&](int i) { return m < s.m && left + 16 * (j + i) < s.n; };
      Floats<4> given[kAtOnce] = {};
      STAGEGPT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        if (source != nullptr && exists(i)) given[i] = load<4>(source, from + 16 * (j + i));
      }
      STAGEGPT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        const Floats<4> four = four_sums(sums, r, j + i);
        const std::int64_t at = begin + 16 * (j + i);
        if (exists(i)) store<4>(c, at, use(four, at, given[i]));
      }
    }
  }
}

// Writes the sums of 64 rows of c. Only results in bf16 have a bias, or an epilogue.
template <class Result, int N>
__device__ void write_sums(Result* c, Result* pre, const Result* bias, const AccumulatorOf<N>& sums, int row,
                           int column, const WgmmaShape& s) {
  const auto add = [](Floats<4> four, std::int64_t, const Floats<4>& given) {
    STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) four.v[i] += given.v[i];
    return four;
  };
  if constexpr (std::is_same_v<Result, Bf16>) {
    const auto gelu = [&](Floats<4> four, std::int64_t at, const Floats<4>& given) {
      four = add(four, at, given);
      store<4>(pre, at, four);
      STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) four.v[i] = gelu_new_approx(four.v[i]).value;
      return four;
    };
    const auto gelu_backward = [](Floats<4> four, std::int64_t, const Floats<4>& given) {
      STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) four.v[i] *= gelu_new_approx(given.v[i]).slope;
      return four;
    };
    if (s.epilogue == Epilogue::gelu) return write_fours(c, bias, true, sums, row, column, s, gelu);
    if (s.epilogue == Epilogue::gelu_backward)
      return write_fours(c, pre, false, sums, row, column, s, gelu_backward);
    if (!s.accumulate) return write_fours(c, bias, true, sums, row, column, s, add);
  }
  write_fours(c, s.accumulate ? c : nullptr, false, sums, row, column, s, add);
}

// ---- v7 ----

inline constexpr int kWgmmaTile = 128;

struct WgmmaTiles {
  SharedTile a[kWgmmaTile / kTileRows];
  WideTile<kWgmmaTile / 64> b;
};

// Copies the part of a matrix (rows,columns) that begins at (row, column) to a tile; zeros beyond the matrix.
__device__ inline void copy_tile(SharedTile& to, const Bf16* matrix, int rows, int columns, int row,
                                 int column) {
  constexpr int kPieces = 8;  // of a row of a tile, 16 bytes each
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kPieces; e += static_cast<int>(blockDim.x)) {
    const int i = e / kPieces, j = e % kPieces * 8;
    const bool exists = row + i < rows && column + j < columns;
    to.store8(i, j, exists ? load8(matrix, (std::int64_t{row} + i) * columns + column + j) : Bf16x8{});
  }
}

// a (M,K), b (K,N).
static __global__ void __launch_bounds__(2 * kWarpgroup, 2)
    matmul_wgmma_kernel(Bf16* c, const Bf16* a, const Bf16* b, const Bf16* bias, int K, WgmmaShape s) {
  STAGEGPT_SHARED_STRUCT(WgmmaTiles, tiles);
  const int row = kWgmmaTile * static_cast<int>(blockIdx.x),
            column = kWgmmaTile * static_cast<int>(blockIdx.y);
  AccumulatorOf<kWgmmaTile> sums;
  set_zero(sums);
  for (int k = 0; k < K; k += 64) {
    for (int i = 0; i < kWgmmaTile; i += 64) {
      copy_tile(tiles.a[i / 64], a, s.m, K, row + i, k);
      copy_tile(tiles.b.part[i / 64], b, K, s.n, k, column + i);
    }
    fence_proxy_async();
    __syncthreads();
    wgmma_fence(sums);
    add_tiles<false, false>(sums, tiles.a[warpgroup_index()], tiles.b);
    wgmma_wait<0>(sums);
    __syncthreads();
  }
  write_sums<Bf16>(c, nullptr, bias, sums, row + kTileRows * warpgroup_index(), column, s);
}

// ---- v8, v9 ----

// The work of the warpgroup that copies.
template <class Sizes, bool kATransposed, bool kBTransposed>
__device__ void copy_tiles(typename Sizes::Memory& memory, const TensorMap& a, const TensorMap& b,
                           const WgmmaShape& s) {
  if (threadIdx.x != kWarpgroup * Sizes::kWarpgroups) return;
  const auto load = [](SharedTile& to, const TensorMap& map, bool transposed, int i, int k,
                       Barrier& barrier) {
    tma_load(to, map, transposed ? i : k, 0, transposed ? k : i, 0, barrier);
  };
  Ring<Sizes::kStages> ring;
  for (int index = static_cast<int>(blockIdx.x); index < s.work(); index += static_cast<int>(gridDim.x)) {
    const WorkOfProduct work = work_at<Sizes>(index, s);
    for (int step = work.first_step; step < work.end_step; ++step, ring.next()) {
      memory.empty[ring.stage()].wait(ring.parity() ^ 1);
      auto& [tiles_a, tiles_b] = memory.stage[ring.stage()];
      Barrier& full = memory.full[ring.stage()];
      full.arrive_and_expect(static_cast<int>(sizeof(typename Sizes::Stage)));
      STAGEGPT_UNROLL for (int i = 0; i < Sizes::R; i += 64)
          load(tiles_a[i / 64], a, kATransposed, work.row + i, 64 * step, full);
      STAGEGPT_UNROLL for (int i = 0; i < Sizes::C; i += 64)
          load(tiles_b.part[i / 64], b, !kBTransposed, work.column + i, 64 * step, full);
    }
  }
}

template <class Sizes, class Result, bool kATransposed, bool kBTransposed>
static __global__ void __launch_bounds__(Sizes::kThreads, 1)
    matmul_ring_kernel(Result* c, Result* pre, const Result* bias, const __grid_constant__ TensorMap a,
                       const __grid_constant__ TensorMap b, const __grid_constant__ WgmmaShape s) {
  using Memory = typename Sizes::Memory;
  using Registers = WarpgroupRegisters<Sizes::kWarpgroups>;
  STAGEGPT_SHARED_STRUCT(Memory, memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Sizes::kStages; ++stage) {
      memory.full[stage].init(1);
      memory.empty[stage].init(4 * Sizes::kWarpgroups);  // warps
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int w = warpgroup_index();
  if (w == Sizes::kWarpgroups) {
    fewer_registers<Registers::kFew>();
    return copy_tiles<Sizes, kATransposed, kBTransposed>(memory, a, b, s);
  }
  more_registers<Registers::kMany>();
  // This warp has finished with the tiles of a stage.
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane_index() == 0) memory.empty[stage].arrive();
  };
  Ring<Sizes::kStages> ring;
  typename Sizes::Sums sums;
  for (int index = static_cast<int>(blockIdx.x); index < s.work(); index += static_cast<int>(gridDim.x)) {
    const WorkOfProduct work = work_at<Sizes>(index, s);
    set_zero(sums);
    wgmma_fence(sums);
    int before = 0;  // the stage of the step before
    for (int step = work.first_step; step < work.end_step; ++step, ring.next()) {
      memory.full[ring.stage()].wait(ring.parity());
      const auto& [tiles_a, tiles_b] = memory.stage[ring.stage()];
      wgmma_fence();  // names no registers: products are under way that use them
      add_tiles<kATransposed, kBTransposed>(sums, tiles_a[w], tiles_b);
      wgmma_wait<1>();
      if (step > work.first_step) release(before);
      before = ring.stage();
    }
    wgmma_wait<0>(sums);
    release(before);
    const std::int64_t part = work.split * (s.m * s.ldc);
    write_sums(c + part, pre, bias, sums, work.row + kTileRows * w, work.column, s);
  }
}

// c[m][n] = Σ parts[·][m][n] in order, or +=.
static __global__ void add_parts_kernel(float* c, const float* parts, int splits, int columns,
                                        std::int64_t ldc, bool accumulate, std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  float sum = parts[i];
  for (int split = 1; split < splits; ++split) sum += parts[split * n + i];
  put(c, i / columns * ldc + i % columns, sum, accumulate);
}

// ---- Host ----

template <class Result>
WgmmaShape wgmma_shape(const ProductOf<Bf16, Result>& p, int rows, int columns) {
  const auto steps = static_cast<int>(parts(p.k, 64));
  return {p.ldc,
          static_cast<int>(p.m),
          static_cast<int>(p.n),
          static_cast<int>(parts(p.m, rows)),
          static_cast<int>(parts(p.n, columns)),
          steps,
          1,
          steps,
          p.accumulate,
          p.epilogue};
}

// Divides the sums over k into parts, so that few of an H100's 132 multiprocessors have nothing to do in the
// last round of tiles. The number does not depend on the device. Each part needs a place of `place` elements,
// of which there are `most`.
inline void divide_sums(WgmmaShape& s, std::int64_t place, std::int64_t most) {
  constexpr int kMultiprocessors = 132, kMostSplits = 8, kFewestSteps = 16;
  // A part's sums are written and read once more: a share of the whole product's time.
  constexpr double kCost = 0.02;
  const std::int64_t tiles = std::int64_t{s.row_tiles} * s.column_tiles;
  double best = static_cast<double>(parts(tiles, kMultiprocessors));
  for (int wanted = 2; wanted <= kMostSplits; ++wanted) {
    const auto steps = static_cast<int>(parts(s.all_steps, wanted)),
               splits = static_cast<int>(parts(s.all_steps, steps));
    if (steps < kFewestSteps || splits * place > most) break;
    const double time =
        static_cast<double>(parts(tiles * splits, kMultiprocessors)) / splits + kCost * splits;
    if (time >= best) continue;
    best = time;
    s.steps = steps;
    s.splits = splits;
  }
}

template <class T>
TensorMap map_of(const MatrixOf<T>& matrix, std::int64_t rows, std::int64_t columns) {
  return make_tensor_map(matrix.data, matrix.transposed
                                          ? std::array{rows, std::int64_t{1}, columns, std::int64_t{1}}
                                          : std::array{columns, std::int64_t{1}, rows, std::int64_t{1}});
}

// The result goes to `c`.
template <class Sizes, bool kATransposed, bool kBTransposed, class Result>
void launch_ring(StreamHandle stream, const ProductOf<Bf16, Result>& p, Result* c, const WgmmaShape& s) {
  const int blocks = Sizes::kPersistent && s.work() > multiprocessors() ? multiprocessors() : s.work();
  launch<matmul_ring_kernel<Sizes, Result, kATransposed, kBTransposed>>(
      dim3(static_cast<unsigned>(blocks)), dim3(Sizes::kThreads), shared_bytes_of<typename Sizes::Memory>(),
      stream, c, p.pre, p.bias, map_of(p.a, p.m, p.k), map_of(p.b, p.k, p.n), s);
}

}  // namespace stagegpt::gpu
