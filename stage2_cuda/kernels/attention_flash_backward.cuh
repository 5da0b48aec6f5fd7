// The backward of flash attention, formulas in attention.cuh.
//
// It computes the scores a second time, p = exp(score - lse): once with a block per tile of queries, for dq,
// and once with a block per tile of keys, for dk and dv. Both need scores and dp, so there are seven products
// of tiles instead of five. But every element is written by one thread, which adds in a fixed order: the same
// bits in every run. Memory beyond input and output: lse and D of each query, padded.
#pragma once

#include "stage2_cuda/kernels/attention_flash.cuh"

namespace stagegpt::gpu {

// The statistics of queries, (2, B·NH, Tp): lse in the Math's unit, then D. Tp is T rounded up to
// kStatisticsRows; beyond T they are ∞ and 0, so that p and ds are zero there.
inline constexpr std::int64_t kStatisticsRows = 128;
__host__ __device__ constexpr std::int64_t padded_rows(const AttentionSize& s) {
  return (s.T + kStatisticsRows - 1) / kStatisticsRows * kStatisticsRows;
}

// Eight threads per query.
template <class Real, int V>
static __global__ void flash_statistics_kernel(float* statistics, const float* lse, const Real* out,
                                               const Real* dout, float lse_unit, AttentionSize s) {
  constexpr int kLanes = 8;
  const std::int64_t Tp = padded_rows(s), heads = s.B * s.NH;
  const std::int64_t i = thread_index() / kLanes, head = i / Tp, t = i % Tp;
  const int lane = lane_index() % kLanes;
  const bool exists = head < heads && t < s.T;
  float sum = 0;
  if (exists) {
    const std::int64_t row = ((head / s.NH * s.T + t) * s.NH + head % s.NH) * s.HS;
    for (std::int64_t c = lane * V; c < s.HS; c += kLanes * V) {
      const Floats<V> a = load<V>(dout, row + c), b = load<V>(out, row + c);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum += a.v[j] * b.v[j];
    }
  }
  sum = warp_sum<kLanes>(sum);
  if (lane != 0 || head >= heads) return;
  statistics[i] = exists ? lse[head * s.T + t] / lse_unit : INFINITY;
  statistics[heads * Tp + i] = sum;
}

template <class Math>
using QueriesTiles = FlashTiles<Math, Math::queries(), 2>;
template <class Math>
using KeysTiles = FlashTiles<Math, Math::keys(), 2>;

// dq of one tile of queries.
template <class Math, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::queries().rows), Math::queries().blocks)
    flash_backward_queries_kernel(Real* dqkv, bool accumulate, const Real* dout, const float* statistics,
                                  const Real* qkv, FlashCall call) {
  using Tiles = QueriesTiles<Math>;
  constexpr int kRows = Math::queries().rows, kChunk = Math::queries().chunk;
  using Scores = typename Math::template Product<kRows, kChunk>;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  const TileOfBlock block(call.s, call.order);
  const HeadOfBlock head(call.s, block.head);
  const int first = (call.order.tiles - 1 - block.rank) * kRows, warp_begin = first + Scores::first_row();
  const auto q_tile = Tiles::fixed(memory, 0), dy_tile = Tiles::fixed(memory, 1);
  Tiles::load_fixed(q_tile, head.rows(call.s, qkv, call.vectors, 0, 3), first);
  Tiles::load_fixed(dy_tile, head.rows(call.s, dout, call.vectors), first);
  float lse[Scores::kThreadRows], dot[Scores::kThreadRows];
  STAGEGPT_UNROLL for (int i = 0; i < Scores::kThreadRows; ++i) {
    const std::int64_t Tp = padded_rows(call.s), t = head.index * Tp + first + Scores::row(i);
    lse[i] = statistics[t];
    dot[i] = statistics[call.s.B * call.s.NH * Tp + t];
  }

  typename Math::template Product<kRows, Math::kHeadSize> dq;
  typename Math::template Left<Math::queries(), decltype(q_tile)> q(q_tile), dy(dy_tile);
  Tiles::template walk_keys<Scores::kWarpRows>(
      memory, qkv, head, call, first, warp_begin,
      [&] {
        q.load();
        dy.load();
      },
      [&](int u0, const auto& k, const auto& v) {
        const ScorePositions<Scores, true> positions{first, u0};
        const FactorsOf<Math, Scores> factors(call, head, positions);
        auto p = Scores::of_rows(q, k), ds = Scores::of_rows(dy, v);
        if (u0 + kChunk - 1 > warp_begin) positions.hide_later_keys(p);
        for_each(ds, [&](float& dp, int i, int j) {
          const float weight = Math::probability(p.at(i, j), call.s.scale, lse[i]);
          dp = weight * (factors.at(i, j) * dp - dot[i]);
        });
        dq.add(ds, k, Tiles::scratch(memory));
      });
  write_product(head.rows(call.s, dqkv, call.vectors, 0, 3), accumulate, dq, call.s.scale, q_tile, first);
}

// dk and dv of one tile of keys. Rows of scores are keys here, columns are queries.
template <class Math, class Real = typename Math::Real>
static __global__ void __launch_bounds__(Math::threads(Math::keys().rows), Math::keys().blocks)
    flash_backward_keys_kernel(Real* dqkv, bool accumulate, const Real* dout, const float* statistics,
                               const Real* qkv, FlashCall call) {
  using Tiles = KeysTiles<Math>;
  constexpr int kRows = Math::keys().rows, kStep = Math::keys().step, kChunk = Math::keys().chunk;
  using Scores = typename Math::template Product<kRows, kChunk>;
  STAGEGPT_DYNAMIC_SHARED(Real, memory);
  STAGEGPT_SHARED(float, of_queries, 2 * 2 * kStep);  // for each buffer, both statistics
  const TileOfBlock block(call.s, call.order);
  const HeadOfBlock head(call.s, block.head);
  const int T = call.T(), first = block.rank * kRows, warp_begin = first + Scores::first_row();
  const auto k_tile = Tiles::fixed(memory, 0), v_tile = Tiles::fixed(memory, 1);
  Tiles::load_fixed(k_tile, head.rows(call.s, qkv, call.vectors, 1, 3), first);
  Tiles::load_fixed(v_tile, head.rows(call.s, qkv, call.vectors, 2, 3), first);

  typename Math::template Product<kRows, Math::kHeadSize> dk, dv;
  typename Math::template Left<Math::keys(), decltype(k_tile)> k(k_tile), v(v_tile);
  walk_tiles<Tiles::kBuffers>(
      first, T, kStep,
      [&](int t0, int buffer) {
        Tiles::load_walked(memory, buffer, head.rows(call.s, qkv, call.vectors, 0, 3),
                           head.rows(call.s, dout, call.vectors), t0);
        if (const int i = 4 * static_cast<int>(threadIdx.x); i < 2 * kStep) {
          const std::int64_t Tp = padded_rows(call.s), heads = call.s.B * call.s.NH;
          const float* from = statistics + (i / kStep * heads + head.index) * Tp + t0 + i % kStep;
          cp_async_16(of_queries, buffer * 2 * kStep + i, from, true);
        }
      },
      [&](int t0, int buffer) {
        if (t0 == first) {
          k.load();
          v.load();
        }
        STAGEGPT_NO_UNROLL for (int n = 0; n < kStep; n += kChunk) {
          if (t0 + n + kChunk <= warp_begin) continue;  // none of these queries sees the warp's keys
          const auto q = Tiles::walked(memory, 0, buffer).from_row(n);
          const auto dy = Tiles::walked(memory, 1, buffer).from_row(n);
          const ScorePositions<Scores, false> positions{first, t0 + n};
          const FactorsOf<Math, Scores> factors(call, head, positions);
          const auto statistic = [&](int which, int j) {
            return of_queries[(2 * buffer + which) * kStep + n + Scores::column(j)];
          };
          auto p = Scores::of_rows(k, q);
          if (t0 + n < warp_begin + Scores::kWarpRows - 1) positions.hide_later_keys(p);
          for_each(p, [&](float& score, int, int j) {
            score = Math::probability(score, call.s.scale, statistic(0, j));
          });
          auto weights = p;
          factors.multiply(weights);
          dv.add(weights, dy, Tiles::scratch(memory));
          auto ds = Scores::of_rows(v, dy);
          for_each(ds, [&](float& dp, int i, int j) {
            dp = p.at(i, j) * (factors.at(i, j) * dp - statistic(1, j));
          });
          dk.add(ds, q, Tiles::scratch(memory));
        }
      });
  write_product(head.rows(call.s, dqkv, call.vectors, 1, 3), accumulate, dk, call.s.scale, k_tile, first);
  write_product(head.rows(call.s, dqkv, call.vectors, 2, 3), accumulate, dv, 1, v_tile, first);
}

// `statistics` has 2·B·NH·padded_rows(s) elements.
template <class Maths, class Real>
void flash_backward(StreamHandle stream, Real* dqkv, bool accumulate, const Real* dout, const Real* out,
                    const float* lse, const Real* qkv, const Dropout& dropout, AttentionSize s,
                    float* statistics) {
  constexpr int kV = kVector<Real>;
  const bool vectors = in_vectors<kV>(s.HS, qkv, dout, out, dqkv);
  const auto run = [&]<int kHS, bool kDropout>() {
    using Math = typename Maths::template Of<kHS, kDropout>;
    const auto statistics_pass = [&]<int V>() {
      launch<flash_statistics_kernel<Real, V>>(blocks(s.B * s.NH * padded_rows(s) * 8, kThreads),
                                               dim3(kThreads), 0, stream, statistics, lse, out, dout,
                                               Math::kLseUnit, s);
    };
    vectors ? statistics_pass.template operator()<kV>() : statistics_pass.template operator()<1>();
    const auto pass = [&]<auto kernel, class Tiles>(int tile_rows) {
      const FlashCall call{s, DropoutArgument(dropout), vectors, block_order<Real>(s, tile_rows, 4)};
      launch<kernel>(flash_grid(call), dim3(Tiles::kThreads), Tiles::kBytes, stream, dqkv, accumulate, dout,
                     static_cast<const float*>(statistics), qkv, call);
    };
    pass.template operator()<flash_backward_queries_kernel<Math>, QueriesTiles<Math>>(Math::queries().rows);
    pass.template operator()<flash_backward_keys_kernel<Math>, KeysTiles<Math>>(Math::keys().rows);
  };
  with_head_size(s.HS, [&](auto head_size) {
    dropout.p > 0 ? run.template operator()<head_size, true>() : run.template operator()<head_size, false>();
  });
}

}  // namespace stagegpt::gpu
