// Flash attention (Dao et al., arXiv:2205.14135), formulas in attention.cuh: a block has one tile of queries
// and walks over the keys, tile by tile, so scores exist only in registers and shared memory.
//
// The softmax is computed online, in powers of two: s is the score times log2 e. After some keys, m[t] is the
// maximum of their s, l[t] = Σ_u 2^(s - m) and o[t] = Σ_u f·2^(s - m)·v[u]; the next keys may raise m to m',
// and l and o are multiplied by 2^(m - m'). At the end out = o/l, lse = (m + log2 l)·ln 2.
//
// The backward computes the scores a second time, p = exp(score - lse): once with a block per tile of
// queries, for dq, and once with a block per tile of keys, for dk and dv. Both need scores and dp, so there
// are seven products of tiles instead of five. But every element is written by one thread, which adds in a
// fixed order: the same bits in every run. Memory beyond input and output: D, (B,NH,T).
//
// The kernels are templates over Math, which multiplies tiles: Fma<HS> in f32, TensorCores<HS> in bf16.
#pragma once

#include <type_traits>

#include "stage2_cuda/kernels/attention_fma.cuh"
#include "stage2_cuda/kernels/attention_mma.cuh"
#include "stage2_cuda/kernels/dropout.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

// The largest head size. Larger ones have no room in registers.
inline constexpr std::int64_t kFlashHeadSize = 128;
inline constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// What every kernel needs. `vectors`: rows of heads can be read 16 bytes at a time.
struct FlashCall {
  AttentionSize s;
  float scale;
  DropoutMap dropout;
  bool vectors;
};

// The shared memory of a kernel: `fixed` tiles with the block's rows, and two tiles with the rows that it
// walks over. There are two buffers of the latter if they fit.
template <class Math, int kRows, int kColumns, int kFixed>
struct FlashTiles {
  using Real = typename Math::Real;
  static constexpr int kRowTile = kRows * Math::kStride, kColumnTile = kColumns * Math::kStride;
  static constexpr int elements(int buffers) {
    return kFixed * kRowTile + 2 * buffers * kColumnTile + kRows * Math::kScratchColumns;
  }
  // A block may have 99 KiB on every GPU of compute capability 8.0 or later; 1 KiB is for lse and D.
  static constexpr int kBuffers = elements(2) * sizeof(Real) <= (98 << 10) ? 2 : 1;
  static constexpr std::size_t kBytes = elements(kBuffers) * sizeof(Real);

  template <class Shared>
  __device__ static Tile<Shared> fixed(const Shared& memory, int i) {
    return {memory, i * kRowTile, Math::kStride};
  }
  template <class Shared>
  __device__ static Tile<Shared> walked(const Shared& memory, int i, int buffer) {
    return {memory, kFixed * kRowTile + (2 * buffer + i) * kColumnTile, Math::kStride};
  }
  // Starts to copy rows first, first + 1, … of two matrices to the tiles that are walked over.
  template <int kHS, class Shared>
  __device__ static void load(const Shared& memory, int buffer, const RowsOfHead<const Real>& a,
                              const RowsOfHead<const Real>& b, int first) {
    load_tile<kColumns, kHS>(walked(memory, 0, buffer), a, first);
    load_tile<kColumns, kHS>(walked(memory, 1, buffer), b, first);
  }
  template <class Shared>
  __device__ static Tile<Shared> scratch(const Shared& memory) {
    return {memory, kFixed * kRowTile + 2 * kBuffers * kColumnTile, Math::kScratchColumns};
  }
};

template <class Math>
using ForwardTiles = FlashTiles<Math, Math::kForwardRows, Math::kForwardColumns, 1>;
template <class Math>
using QueriesTiles = FlashTiles<Math, Math::kBackwardRows, Math::kQueriesColumns, 2>;
template <class Math>
using KeysTiles = FlashTiles<Math, Math::kBackwardRows, Math::kKeysColumns, 2>;

// Blocks that an SM should have at least, so that registers are limited.
constexpr int flash_blocks(int HS) { return HS <= 64 ? 2 : 1; }

// m, l and o of this thread's rows. Of l it has the part of its columns.
template <class Math, int kHS>
struct OnlineSoftmax {
  using Scores = typename Math::template Product<Math::kForwardColumns>;
  using Out = typename Math::template Product<kHS>;

  Out out;
  float max[Out::kThreadRows], sum[Out::kThreadRows] = {};

  __device__ OnlineSoftmax() {
    for (float& m : max) m = -INFINITY;
  }

  // Adds keys u0, u0 + 1, … to l, rescales o, and turns their products q·k into 2^(s - m). Row 0 is query t0.
  __device__ void add_keys(Scores& scores, float log2_scale, int t0, int u0) {
    STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
      const int t = t0 + Scores::row(i);
      float highest = -INFINITY;
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        float& s = scores.at(i, j);
        s = u0 + Scores::column(j) <= t ? log2_scale * s : -INFINITY;
        highest = fmaxf(highest, s);
      }
      const float new_max = fmaxf(max[i], warp_max<Scores::kRowLanes>(highest));
      const float kept = exp2f(max[i] - new_max);  // 0 at the first keys
      max[i] = new_max;
      sum[i] *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Out::kThreadColumns; ++j) out.at(i, j) *= kept;
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        float& s = scores.at(i, j);
        s = exp2f(s - new_max);
        sum[i] += s;
      }
    }
  }
};

// The dropout factors of this thread's scores: one bit each, so that they take two registers.
template <class Scores>
struct DropoutFactors {
  static_assert(Scores::kThreadRows * Scores::kThreadColumns <= 64);
  std::uint64_t kept = ~std::uint64_t{0};
  float factor = 1;

  // query(i, j) and key(i, j): what the thread's score at (i, j) is about.
  template <class Query, class Key>
  __device__ DropoutFactors(const FlashCall& call, const HeadOfBlock& head, const Query& query,
                            const Key& key) {
    if (call.dropout.p == 0) return;
    kept = 0;
    factor = call.dropout.kept;
    for (int i = 0; i < Scores::kThreadRows; ++i) {
      for (int j = 0; j < Scores::kThreadColumns; ++j) {
        const std::int64_t element = head.row(call.s, query(i, j)) * call.s.T + key(i, j);
        const bool keep = dropout_factor(call.dropout, element) > 0;
        kept |= std::uint64_t{keep} << (i * Scores::kThreadColumns + j);
      }
    }
  }

  __device__ float at(int i, int j) const {
    return (kept >> (i * Scores::kThreadColumns + j) & 1) != 0 ? factor : 0;
  }
};

template <class Math, int kHS, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::kForwardRows), flash_blocks(kHS))
    flash_forward_kernel(Real* out, float* lse, const Real* qkv, FlashCall call) {
  using Tiles = ForwardTiles<Math>;
  using Softmax = OnlineSoftmax<Math, kHS>;
  using Scores = typename Softmax::Scores;
  constexpr int kRows = Math::kForwardRows, kColumns = Math::kForwardColumns;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  const HeadOfBlock head(call.s);
  const int T = static_cast<int>(call.s.T);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kRows;
  const auto q = Tiles::fixed(memory, 0);
  load_tile<kRows, kHS>(q, head.rows(call.s, qkv, call.vectors, 0, 3), first);

  const int warp_begin = first + Softmax::Out::first_row(), warp_end = warp_begin + Softmax::Out::kWarpRows;
  Softmax rows;
  walk_tiles<Tiles::kBuffers>(
      0, first + kRows < T ? first + kRows : T, kColumns,
      [&](int u0, int buffer) {
        Tiles::template load<kHS>(memory, buffer, head.rows(call.s, qkv, call.vectors, 1, 3),
                                  head.rows(call.s, qkv, call.vectors, 2, 3), u0);
      },
      [&](int u0, int buffer) {
        if (warp_begin >= T || u0 >= warp_end) return;  // no query of this warp sees these keys
        auto scores = Scores::of_rows(q, Tiles::walked(memory, 0, buffer));
        rows.add_keys(scores, call.scale * kLog2E, first, u0);
        if (call.dropout.p > 0) {
          const DropoutFactors<Scores> factors(
              call, head, [&](int i, int) { return first + Scores::row(i); },
              [&](int, int j) { return u0 + Scores::column(j); });
          STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
            STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
              scores.at(i, j) *= factors.at(i, j);
            }
          }
        }
        rows.out.add(scores, Tiles::walked(memory, 1, buffer), Tiles::scratch(memory));
      });

  STAGEGPT_UNROLL for (int i = 0; i < Softmax::Out::kThreadRows; ++i) {
    const float l = warp_sum<Softmax::Out::kRowLanes>(rows.sum[i]);
    STAGEGPT_UNROLL for (int j = 0; j < Softmax::Out::kThreadColumns; ++j) rows.out.at(i, j) /= l;
    const int t = first + Softmax::Out::row(i);
    if (t < T && Softmax::Out::column(0) == 0) lse[head.row(call.s, t)] = kLn2 * (rows.max[i] + log2f(l));
  }
  write_product<kHS>(head.rows(call.s, out, call.vectors), false, rows.out, 1, q, first);
}

// Writes D of the queries of this warp to dots (B,NH,T). `dy` has their rows of dout.
template <int kRows, class Shared, class Real>
__device__ void write_dots(float* dots, const Tile<Shared>& dy, const RowsOfHead<const Real>& out,
                           const HeadOfBlock& head, const AttentionSize& s, int first, int begin) {
  for (int r = begin; r < begin + kRows && first + r < out.T; ++r) {
    float sum = 0;
    for (int c = lane_index(); c < out.HS; c += kWarp) {
      sum +=
          as_float(static_cast<Real>(dy.memory[dy.at(r, c)])) * as_float(out.data[(first + r) * out.ld + c]);
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) dots[head.row(s, first + r)] = sum;
  }
}

// lse, times log2 e, and D of one query.
struct QueryStatistics {
  float log2_lse = 0, dot = 0;
};

__device__ inline QueryStatistics statistics_of(int t, const HeadOfBlock& head, const AttentionSize& s,
                                                const float* lse, const float* dots) {
  if (t >= s.T) return {};
  const std::int64_t row = head.row(s, t);
  return {kLog2E * lse[row], dots[row]};
}

// The two matrices of the backward that are multiplied by rows of heads; ds without the scale.
struct ScoreGradient {
  float fp = 0, ds = 0;
};

// `visible`: whether the query sees the key. f: the dropout factor.
__device__ inline ScoreGradient score_gradient(bool visible, float log2_score, float dp, float f,
                                               QueryStatistics query) {
  if (!visible) return {};
  const float p = exp2f(log2_score - query.log2_lse);
  return {f * p, p * (f * dp - query.dot)};
}

// D and dq of one tile of queries.
template <class Math, int kHS, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::kBackwardRows), flash_blocks(kHS))
    flash_backward_queries_kernel(Real* dqkv, bool accumulate, const Real* dout, const Real* out,
                                  const float* lse, float* dots, const Real* qkv, FlashCall call) {
  using Tiles = QueriesTiles<Math>;
  constexpr int kRows = Math::kBackwardRows, kColumns = Math::kQueriesColumns;
  using Scores = typename Math::template Product<kColumns>;
  using Gradient = typename Math::template Product<kHS>;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  const HeadOfBlock head(call.s);
  const int T = static_cast<int>(call.s.T);
  const int first = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kRows;
  const auto q = Tiles::fixed(memory, 0), dy = Tiles::fixed(memory, 1);
  load_tile<kRows, kHS>(q, head.rows(call.s, qkv, call.vectors, 0, 3), first);
  load_tile<kRows, kHS>(dy, head.rows(call.s, dout, call.vectors), first);
  cp_async_wait_all();
  __syncthreads();
  write_dots<Scores::kWarpRows>(dots, dy, head.rows(call.s, out, call.vectors), head, call.s, first,
                                Scores::first_row());
  __syncwarp();  // the warp's D can be read
  QueryStatistics queries[Scores::kThreadRows];
  STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
    queries[i] = statistics_of(first + Scores::row(i), head, call.s, lse, dots);
  }

  const float log2_scale = kLog2E * call.scale;
  const int warp_begin = first + Scores::first_row(), warp_end = warp_begin + Scores::kWarpRows;
  Gradient dq;
  walk_tiles<Tiles::kBuffers>(
      0, first + kRows < T ? first + kRows : T, kColumns,
      [&](int u0, int buffer) {
        Tiles::template load<kHS>(memory, buffer, head.rows(call.s, qkv, call.vectors, 1, 3),
                                  head.rows(call.s, qkv, call.vectors, 2, 3), u0);
      },
      [&](int u0, int buffer) {
        if (warp_begin >= T || u0 >= warp_end) return;  // no query of this warp sees these keys
        const auto k = Tiles::walked(memory, 0, buffer), v = Tiles::walked(memory, 1, buffer);
        auto scores = Scores::of_rows(q, k);
        const auto dp = Scores::of_rows(dy, v);
        const DropoutFactors<Scores> factors(
            call, head, [&](int i, int) { return first + Scores::row(i); },
            [&](int, int j) { return u0 + Scores::column(j); });
        STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
          const int t = first + Scores::row(i);
          STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
            const bool visible = t < T && u0 + Scores::column(j) <= t;
            scores.at(i, j) = score_gradient(visible, log2_scale * scores.at(i, j), dp.at(i, j),
                                             factors.at(i, j), queries[i])
                                  .ds;
          }
        }
        dq.add(scores, k, Tiles::scratch(memory));
      });
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 0, 3), accumulate, dq, call.scale, q, first);
}

// dk and dv of one tile of keys. Rows of scores are keys here, columns are queries.
template <class Math, int kHS, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::kBackwardRows), flash_blocks(kHS))
    flash_backward_keys_kernel(Real* dqkv, bool accumulate, const Real* dout, const float* lse,
                               const float* dots, const Real* qkv, FlashCall call) {
  using Tiles = KeysTiles<Math>;
  constexpr int kRows = Math::kBackwardRows, kColumns = Math::kKeysColumns;
  using Scores = typename Math::template Product<kColumns>;
  using Gradient = typename Math::template Product<kHS>;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  STAGEGPT_SHARED(float, log2_lses, 2 * kColumns);
  STAGEGPT_SHARED(float, query_dots, 2 * kColumns);
  const HeadOfBlock head(call.s);
  const int T = static_cast<int>(call.s.T);
  const int first = static_cast<int>(blockIdx.y) * kRows;
  const auto k = Tiles::fixed(memory, 0), v = Tiles::fixed(memory, 1);
  load_tile<kRows, kHS>(k, head.rows(call.s, qkv, call.vectors, 1, 3), first);
  load_tile<kRows, kHS>(v, head.rows(call.s, qkv, call.vectors, 2, 3), first);

  const float log2_scale = kLog2E * call.scale;
  const int warp_begin = first + Scores::first_row();
  Gradient dk, dv;
  walk_tiles<Tiles::kBuffers>(
      first, T, kColumns,
      [&](int t0, int buffer) {
        Tiles::template load<kHS>(memory, buffer, head.rows(call.s, qkv, call.vectors, 0, 3),
                                  head.rows(call.s, dout, call.vectors), t0);
        if (const int i = static_cast<int>(threadIdx.x); i < kColumns) {
          const QueryStatistics query = statistics_of(t0 + i, head, call.s, lse, dots);
          log2_lses[buffer * kColumns + i] = query.log2_lse;
          query_dots[buffer * kColumns + i] = query.dot;
        }
      },
      [&](int t0, int buffer) {
        if (warp_begin >= T || t0 + kColumns <= warp_begin) return;  // none of these queries sees its keys
        const auto q = Tiles::walked(memory, 0, buffer), dy = Tiles::walked(memory, 1, buffer);
        auto scores = Scores::of_rows(k, q), dp = Scores::of_rows(v, dy);
        const DropoutFactors<Scores> factors(
            call, head, [&](int, int j) { return t0 + Scores::column(j); },
            [&](int i, int) { return first + Scores::row(i); });
        STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
          const int column = Scores::column(j), t = t0 + column;
          const QueryStatistics query = {log2_lses[buffer * kColumns + column],
                                         query_dots[buffer * kColumns + column]};
          STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
            const bool visible = t < T && first + Scores::row(i) <= t;
            const ScoreGradient gradient =
                score_gradient(visible, log2_scale * scores.at(i, j), dp.at(i, j), factors.at(i, j), query);
            scores.at(i, j) = gradient.fp;
            dp.at(i, j) = gradient.ds;
          }
        }
        dv.add(scores, dy, Tiles::scratch(memory));
        dk.add(dp, q, Tiles::scratch(memory));
      });
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 1, 3), accumulate, dk, call.scale, k, first);
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 2, 3), accumulate, dv, 1, v, first);
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

template <class Real, int kHS>
using FlashMath = std::conditional_t<std::is_same_v<Real, float>, Fma<kHS>, TensorCores<kHS>>;

// A grid of blocks for `rows` queries or keys each.
inline dim3 attention_grid(AttentionSize s, int rows) {
  return dim3(static_cast<unsigned>(s.B * s.NH), static_cast<unsigned>(parts(s.T, rows)));
}

template <class Real>
void flash_forward(StreamHandle stream, Real* out, float* lse, const Real* qkv, const Dropout& dropout,
                   AttentionSize s) {
  const FlashCall call{s, s.scale(), DropoutMap(dropout), in_vectors<kVector<Real>>(s.HS, qkv, out)};
  with_head_size(s.HS, [&](auto head_size) {
    constexpr int kHS = head_size, kRows = FlashMath<Real, kHS>::kForwardRows;
    using Math = FlashMath<Real, kHS>;
    launch<flash_forward_kernel<Math, kHS>>(attention_grid(s, kRows), dim3(Math::threads(kRows)),
                                            ForwardTiles<Math>::kBytes, stream, out, lse, qkv, call);
  });
}

// `dots` has B·NH·T elements, for D.
template <class Real>
void flash_backward(StreamHandle stream, Real* dqkv, bool accumulate, const Real* dout, const Real* out,
                    const float* lse, const Real* qkv, const Dropout& dropout, AttentionSize s, float* dots) {
  const FlashCall call{s, s.scale(), DropoutMap(dropout), in_vectors<kVector<Real>>(s.HS, qkv, dout, dqkv)};
  with_head_size(s.HS, [&](auto head_size) {
    constexpr int kHS = head_size, kRows = FlashMath<Real, kHS>::kBackwardRows;
    using Math = FlashMath<Real, kHS>;
    const dim3 grid = attention_grid(s, kRows), block(Math::threads(kRows));
    launch<flash_backward_queries_kernel<Math, kHS>>(grid, block, QueriesTiles<Math>::kBytes, stream, dqkv,
                                                     accumulate, dout, out, lse, dots, qkv, call);
    launch<flash_backward_keys_kernel<Math, kHS>>(grid, block, KeysTiles<Math>::kBytes, stream, dqkv,
                                                  accumulate, dout, lse, static_cast<const float*>(dots), qkv,
                                                  call);
  });
}

}  // namespace stagegpt::gpu
