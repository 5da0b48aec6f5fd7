// The backward of flash attention, formulas in attention.cuh.
//
// It computes the scores a second time, p = exp(score - lse): once with a block per tile of queries, for D
// and dq, and once with a block per tile of keys, for dk and dv. Both need scores and dp, so there are seven
// products of tiles instead of five. But every element is written by one thread, which adds in a fixed order:
// the same bits in every run. Memory beyond input and output: D, (B,NH,T).
#pragma once

#include "stage2_cuda/kernels/attention_flash.cuh"

namespace stagegpt::gpu {

template <class Math>
using QueriesTiles = FlashTiles<Math, Math::kBackwardRows, Math::kQueriesColumns, 2>;
template <class Math>
using KeysTiles = FlashTiles<Math, Math::kBackwardRows, Math::kKeysColumns, 2>;

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
  constexpr int kRows = Math::kBackwardRows;
  using Scores = typename Math::template Product<Math::kQueriesColumns>;
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

  const float log2_scale = kLog2E * call.s.scale;
  Gradient dq;
  walk_keys<Tiles, Scores, kHS>(memory, qkv, head, call, first, [&](int u0, const auto& k, const auto& v) {
    auto scores = Scores::of_rows(q, k);
    const auto dp = Scores::of_rows(dy, v);
    const DropoutFactors<Scores> factors(
        call, head, [&](int i, int) { return first + Scores::row(i); },
        [&](int, int j) { return u0 + Scores::column(j); });
    STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
      const int t = first + Scores::row(i);
      STAGEGPT_UNROLL for (int j = 0; j < Scores::kThreadColumns; ++j) {
        const bool visible = t < T && u0 + Scores::column(j) <= t;
        scores.at(i, j) =
            score_gradient(visible, log2_scale * scores.at(i, j), dp.at(i, j), factors.at(i, j), queries[i])
                .ds;
      }
    }
    dq.add(scores, k, Tiles::scratch(memory));
  });
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 0, 3), accumulate, dq, call.s.scale, q, first);
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

  const float log2_scale = kLog2E * call.s.scale;
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
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 1, 3), accumulate, dk, call.s.scale, k, first);
  write_product<kHS>(head.rows(call.s, dqkv, call.vectors, 2, 3), accumulate, dv, 1, v, first);
}

// `dots` has B·NH·T elements, for D.
template <class Real>
void flash_backward(StreamHandle stream, Real* dqkv, bool accumulate, const Real* dout, const Real* out,
                    const float* lse, const Real* qkv, const Dropout& dropout, AttentionSize s, float* dots) {
  const FlashCall call{s, DropoutArgument(dropout), in_vectors<kVector<Real>>(s.HS, qkv, dout, dqkv)};
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
