// Flash attention (Dao et al., arXiv:2205.14135), formulas in attention.cuh: a block has one tile of queries
// and walks over the keys, tile by tile, so scores exist only in registers and shared memory.
//
// The softmax is computed online, in powers of two, with c = scale·log2 e. After some keys, m[t] is the
// maximum of their products q[t]·k[u], l[t] = Σ_u 2^(c·(q·k - m)) and o[t] = Σ_u f·2^(c·(q·k - m))·v[u]; the
// next keys may raise m to m', and l and o are multiplied by 2^(c·(m - m')). At the end out = o/l, lse = (c·m
// + log2 l)·ln 2. So c has to be positive.
//
// The kernels are templates over Math, which multiplies tiles: in f32, in TF32 (f32 with rounded factors), or
// in bf16.
#pragma once

#include <algorithm>
#include <type_traits>

#include "stage2_cuda/kernels/attention_fma.cuh"
#include "stage2_cuda/kernels/attention_mma.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

// The Math for heads of at most kHS channels, by precision.
struct F32Math {
  template <int kHS, bool kDropout>
  using Of = Fma<kHS, kDropout>;
};
struct Tf32Math {
  template <int kHS, bool kDropout>
  using Of = TensorCores<float, kHS, kDropout>;
};
struct Bf16Math {
  template <int kHS, bool kDropout>
  using Of = TensorCores<Bf16, kHS, kDropout>;
};

// The largest head size. Larger ones have no room in registers, or in the 64 KiB of shared memory of compute
// capability 7.5.
inline constexpr std::int64_t kFlashHeadSize = 128, kFlashHeadSizeOf75 = 64;

// What every kernel needs. `vectors`: rows of heads can be read 16 bytes at a time.
struct FlashCall {
  AttentionSize s;
  DropoutArgument dropout;
  bool vectors;
  BlockOrder order;

  const std::int32_t*& device_pointer() { return dropout.device_pointer(); }
  __device__ int T() const { return static_cast<int>(s.T); }
};

// The shared memory of a kernel: `fixed` tiles with the block's rows, and two tiles with the rows that it
// walks over. There are two buffers of the latter if they fit.
template <class Math, FlashShape kShape, int kFixed>
struct FlashTiles {
  using Real = typename Math::Real;
  static constexpr int kThreads = Math::threads(kShape.rows);
  static constexpr int kRowTile = kShape.rows * Math::kStride, kStepTile = kShape.step * Math::kStride;
  static constexpr int elements(int buffers) {
    return kFixed * kRowTile + 2 * buffers * kStepTile + kShape.rows * Math::kScratchColumns;
  }
  // A block may have 99 KiB on every GPU of compute capability 8.0 or later; 1 KiB is for statistics.
  static constexpr int kBuffers = elements(2) * sizeof(Real) <= (98 << 10) ? 2 : 1;
  static constexpr std::size_t kBytes = elements(kBuffers) * sizeof(Real);
  static_assert(kBytes <= (98 << 10));

  template <class Shared>
  using TileOf = HeadTile<Real, Math::kHeadSize, Math::kStride, Shared>;

  template <class Shared>
  __device__ static TileOf<Shared> fixed(const Shared& memory, int i) {
    return {memory, i * kRowTile};
  }
  template <class Shared>
  __device__ static TileOf<Shared> walked(const Shared& memory, int i, int buffer) {
    return {memory, kFixed * kRowTile + (2 * buffer + i) * kStepTile};
  }
  template <class Shared>
  __device__ static Tile<Shared> scratch(const Shared& memory) {
    return {memory, kFixed * kRowTile + 2 * kBuffers * kStepTile, Math::kScratchColumns};
  }

  // Starts to copy rows first, first + 1, … to a fixed tile, or of two matrices to the tiles that are walked
  // over.
  template <class Shared>
  __device__ static void load_fixed(const TileOf<Shared>& tile, const RowsOfHead<const Real>& rows,
                                    int first) {
    load_tile<kShape.rows>(tile, rows, first);
  }
  template <class Shared>
  __device__ static void load_walked(const Shared& memory, int buffer, const RowsOfHead<const Real>& a,
                                     const RowsOfHead<const Real>& b, int first) {
    load_tile<kShape.step>(walked(memory, 0, buffer), a, first);
    load_tile<kShape.step>(walked(memory, 1, buffer), b, first);
  }

  // Walks over the keys and values that the block's queries see, from query `first` on: start(), then for
  // each chunk of keys of which a warp's queries see one, use(u0, k, v). The warp has kWarpRows rows from
  // `warp_begin` on.
  template <int kWarpRows, class Shared, class Start, class Use>
  __device__ static void walk_keys(const Shared& memory, const Real* qkv, const HeadOfBlock& head,
                                   const FlashCall& call, int first, int warp_begin, const Start& start,
                                   const Use& use) {
    const int T = call.T(), end = first + kShape.rows;
    walk_tiles<kBuffers>(
        0, end < T ? end : T, kShape.step,
        [&](int u0, int buffer) {
          load_walked(memory, buffer, head.rows(call.s, qkv, call.vectors, 1, 3),
                      head.rows(call.s, qkv, call.vectors, 2, 3), u0);
        },
        [&](int u0, int buffer) {
          if (u0 == 0) start();
          STAGEGPT_UNROLL for (int n = 0; n < kShape.step; n += kShape.chunk) {
            if (u0 + n >= warp_begin + kWarpRows) return;
            use(u0 + n, walked(memory, 0, buffer).from_row(n), walked(memory, 1, buffer).from_row(n));
          }
        });
  }
};

template <class Math>
using ForwardTiles = FlashTiles<Math, Math::forward(), 1>;

// What the scores of a thread are about: queries are rows and keys are columns, or keys rows and queries
// columns.
template <class Scores, bool kQueriesAreRows>
struct ScorePositions {
  int first_row, first_column;

  __device__ int query(int i, int j) const {
    return kQueriesAreRows ? first_row + Scores::row(i) : first_column + Scores::column(j);
  }
  __device__ int key(int i, int j) const {
    return kQueriesAreRows ? first_column + Scores::column(j) : first_row + Scores::row(i);
  }
  // A query does not see later keys: their scores become -∞. Without a branch for each score, so that their
  // exponentials can overlap.
  __device__ void hide_later_keys(Scores& scores) const {
    for_each(scores,
             [&](float& score, int i, int j) { score = key(i, j) > query(i, j) ? -INFINITY : score; });
  }
};

// m, l and o of this thread's rows. Of l it has the part of its columns.
template <class Math>
struct OnlineSoftmax {
  using Scores = typename Math::template Product<Math::forward().rows, Math::forward().chunk>;
  using Out = typename Math::template Product<Math::forward().rows, Math::kHeadSize>;

  Out out;
  float max[Out::kThreadRows], sum[Out::kThreadRows] = {};

  __device__ OnlineSoftmax() {
    for (float& m : max) m = -INFINITY;
  }

  // Adds keys to l, rescales o, and turns the keys' products q·k into 2^(c·(q·k - m)). Each query sees at
  // least one of the keys.
  __device__ void add_keys(Scores& scores, float scale) {
    STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
      float highest = max[i];
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        highest = fmaxf(highest, scores.at(i, j));
      }
      highest = warp_max<Scores::kRowLanes>(highest);
      const float kept = exp2_approx(scale * kLog2E * (max[i] - highest));  // 0 at the first keys
      max[i] = highest;
      sum[i] *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Out::kThreadColumns; ++j) out.at(i, j) *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        scores.at(i, j) = Math::power(scores.at(i, j), scale, highest);
        sum[i] += scores.at(i, j);
      }
    }
  }
};

// The dropout factors of this thread's scores: one bit each, so that they take two registers.
template <class Scores>
struct DropoutFactors {
  static_assert(Scores::kThreadRows * Scores::kThreadColumns <= 64);
  std::uint64_t kept = 0;
  float factor;

  template <class Positions>
  __device__ DropoutFactors(const FlashCall& call, const HeadOfBlock& head, const Positions& positions) {
    const DropoutMap map = call.dropout.map();
    factor = map.kept;
    for (int i = 0; i < Scores::kThreadRows; ++i) {
      for (int j = 0; j < Scores::kThreadColumns; ++j) {
        const std::int64_t element = head.row(call.s, positions.query(i, j)) * call.s.T + positions.key(i, j);
        const bool keep = dropout_factor(map, element) > 0;
        kept |= std::uint64_t{keep} << (i * Scores::kThreadColumns + j);
      }
    }
  }

  __device__ float at(int i, int j) const {
    return (kept >> (i * Scores::kThreadColumns + j) & 1) != 0 ? factor : 0;
  }
  __device__ void multiply(Scores& scores) const {
    for_each(scores, [&](float& score, int i, int j) { score *= at(i, j); });
  }
};

// Without dropout. All factors are one.
template <class Scores>
struct NoDropout {
  template <class Positions>
  __device__ NoDropout(const FlashCall&, const HeadOfBlock&, const Positions&) {}
  __device__ float at(int, int) const { return 1; }
  __device__ void multiply(Scores&) const {}
};

template <class Math, class Scores>
using FactorsOf = std::conditional_t<Math::kDropout, DropoutFactors<Scores>, NoDropout<Scores>>;

template <class Math, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::forward().rows), Math::forward().blocks)
    flash_forward_kernel(Real* out, float* lse, const Real* qkv, FlashCall call) {
  using Tiles = ForwardTiles<Math>;
  using Softmax = OnlineSoftmax<Math>;
  using Scores = typename Softmax::Scores;
  constexpr int kRows = Math::forward().rows;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  const TileOfBlock block(call.s, call.order);
  const HeadOfBlock head(call.s, block.head);
  const int first = (call.order.tiles - 1 - block.rank) * kRows, warp_begin = first + Scores::first_row();
  const auto q_tile = Tiles::fixed(memory, 0);
  Tiles::load_fixed(q_tile, head.rows(call.s, qkv, call.vectors, 0, 3), first);

  Softmax rows;
  typename Math::template Left<Math::forward(), decltype(q_tile)> q(q_tile);
  Tiles::template walk_keys<Scores::kWarpRows>(
      memory, qkv, head, call, first, warp_begin, [&] { q.load(); },
      [&](int u0, const auto& k, const auto& v) {
        const ScorePositions<Scores, true> positions{first, u0};
        const FactorsOf<Math, Scores> factors(call, head, positions);
        auto scores = Scores::of_rows(q, k);
        if (u0 + Math::forward().chunk - 1 > warp_begin) positions.hide_later_keys(scores);
        rows.add_keys(scores, call.s.scale);
        factors.multiply(scores);
        rows.out.add(scores, v, Tiles::scratch(memory));
      });

  STAGEGPT_UNROLL for (int i = 0; i < Softmax::Out::kThreadRows; ++i) {
    const float l = warp_sum<Softmax::Out::kRowLanes>(rows.sum[i]), factor = 1 / l;
    STAGEGPT_UNROLL for (int j = 0; j < Softmax::Out::kThreadColumns; ++j) rows.out.at(i, j) *= factor;
    const int t = first + Softmax::Out::row(i);
    if (t < call.T() && Softmax::Out::column(0) == 0)
      lse[head.row(call.s, t)] = kLn2 * (call.s.scale * kLog2E * rows.max[i] + log2f(l));
  }
  write_product(head.rows(call.s, out, call.vectors), false, rows.out, 1, q_tile, first);
}

// Calls run(kHS), with kHS a constant: the smallest of the compiled head sizes that holds HS columns.
template <class Run>
void with_head_size(std::int64_t HS, const Run& run) {
  if (HS <= 32) return run(std::integral_constant<int, 32>());
  if (HS <= 64) return run(std::integral_constant<int, 64>());
  check(HS <= kFlashHeadSize, "flash attention: heads of ", HS, " channels");
  return run(std::integral_constant<int, 128>());
}

// A block for each tile of `rows` rows of each head, in an order for kernels that walk over `matrices`
// matrices. Groups of heads have 20 MiB, half of the L2 cache of an A100.
template <class Real>
BlockOrder block_order(const AttentionSize& s, int rows, int matrices) {
  const std::int64_t heads = s.B * s.NH,
                     bytes = matrices * s.T * s.HS * static_cast<std::int64_t>(sizeof(Real));
  const std::int64_t group =
      std::clamp<std::int64_t>((std::int64_t{20} << 20) / std::max<std::int64_t>(bytes, 1), 1, heads);
  return {static_cast<int>(parts(s.T, rows)), static_cast<int>(group)};
}
inline dim3 flash_grid(const FlashCall& call) {
  return dim3(static_cast<unsigned>(call.s.B * call.s.NH * call.order.tiles));
}

// For heads of at most kHS channels.
template <class Maths, int kHS, class Real>
void flash_forward_heads(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                         AttentionSize s) {
  const auto run = [&]<bool kDropout>() {
    using Math = typename Maths::template Of<kHS, kDropout>;
    constexpr FlashShape kShape = Math::forward();
    const FlashCall call{s, DropoutArgument(dropout), in_vectors<kVector<Real>>(s.HS, qkv, out),
                         block_order<Real>(s, kShape.rows, 2)};
    launch<flash_forward_kernel<Math>>(flash_grid(call), dim3(Math::threads(kShape.rows)),
                                       ForwardTiles<Math>::kBytes, stream, out, lse, qkv, call);
  };
  dropout.p > 0 ? run.template operator()<true>() : run.template operator()<false>();
}

template <class Maths, class Real>
void flash_forward(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                   AttentionSize s) {
  with_head_size(s.HS, [&](auto head_size) {
    flash_forward_heads<Maths, head_size>(stream, out, lse, qkv, dropout, s);
  });
}

}  // namespace stagegpt::gpu
