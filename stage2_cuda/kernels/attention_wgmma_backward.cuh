// The backward of flash attention for compute capability 9.0 (attention_wgmma.cuh), as two kernels: one with
// 64 queries for each warpgroup, for dq, and one with 64 keys, for dk and dv. Both compute the scores again,
// p = 2^(c·s - lse·log2 e) with c = scale · log2 e. The second one multiplies k·q and v·dout, so that p and
// ds are the left operands of dv and dk as they are in registers.
//
// The first one computes D too, and writes D and -lse·log2 e for the second one: (2,B,NH,padded_rows()), with
// -∞ for queries beyond T.
#pragma once

#include "stage2_cuda/kernels/attention_wgmma_dropout.cuh"

namespace stagegpt::gpu {

template <int kBlocks>
using QueriesWalk = Walk<kBlocks, kBlocks == 1 ? 3 : 2, 3, kBlocks == 1 ? 2 : 1, kBlocks == 1 ? 4 : 3, true>;
template <int kBlocks>
using KeysWalk = Walk<kBlocks, kBlocks == 1 ? 3 : 2, 2, kBlocks == 1 ? 2 : 1, kBlocks == 1 ? 6 : 4, false>;

// -lse·log2 e and D of the thread's two queries.
struct QueryRows {
  float log2_lse[2], dot[2];
};

// D, of which each of four lanes then has the sum.
template <int kBlocks>
__device__ void set_dots(QueryRows& rows, const SharedTile (&dy)[kBlocks], const SharedTile (&out)[kBlocks]) {
  const int lane = lane_index(), row = accumulator_warp_row() + lane % 16;
  rows.dot[0] = rows.dot[1] = 0;
  STAGEGPT_UNROLL for (int k = 0; k < 4 * kBlocks; ++k) {
    const int column = 16 * (k % 4) + lane / 16 * 8;
    const FragmentA x = ldmatrix_x4(dy[k / 4], row, column), y = ldmatrix_x4(out[k / 4], row, column);
    STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) {
      float& dot = rows.dot[i % 2];
      dot = fmaf(first_of(x.pair[i]), first_of(y.pair[i]), dot);
      dot = fmaf(second_of(x.pair[i]), second_of(y.pair[i]), dot);
    }
  }
  rows.dot[0] = warp_sum<4>(rows.dot[0]), rows.dot[1] = warp_sum<4>(rows.dot[1]);
}

// dp of kept scores, times their factor; zero of the others.
__device__ inline void drop_gradients(Accumulator& dp, unsigned kept, float factor) {
  STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) dp[e] = (kept >> e & 1) != 0 ? dp[e] * factor : 0;
}

// Walks over the keys of 64 queries.
template <int kBlocks, bool kDropout, class W = QueriesWalk<kBlocks>>
__device__ void add_keys(const WgmmaCall& call, int head, typename W::Memory& memory,
                         const SharedTile (&q)[kBlocks], const SharedTile (&dy)[kBlocks],
                         typename W::Stages& ring, int steps, const QueryRows& rows,
                         Accumulator (&dq)[kBlocks]) {
  const float c = call.log2_scale;
  Accumulator s, dp;
  Operand ds;
  set_zero(dq);
  for (int step = 0; step < steps; ++step, ring.next()) {
    memory.full[ring.stage()].wait(ring.parity());
    const auto& [k, v] = memory.walked[ring.stage()];
    wgmma_fence(s, dp);
    multiply(s, q, k);
    multiply(dp, dy, v);
    unsigned kept = 0;
    if constexpr (kDropout)
      kept = kept_scores<false>(call, head, kTileRows * (steps - 1), kTileRows * (steps - 1 - step));
    wgmma_wait<1>(s);
    STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) s[e] = exp2_approx(fmaf(s[e], c, rows.log2_lse[e / 2 % 2]));
    if (step == 0) {  // the tile with the diagonal: no later keys
      STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) {
        if (accumulator_column(e) > accumulator_row(e)) s[e] = 0;
      }
    }
    wgmma_wait<0>(dp);
    if constexpr (kDropout) drop_gradients(dp, kept, call.dropout.kept());
    STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) dp[e] = s[e] * (dp[e] - rows.dot[e / 2 % 2]);
    ds.round(dp);
    wgmma_fence(ds, dq);
    add_product(dq, ds, k);
    wgmma_wait<0>(dq, ds);
    W::release(memory, ring.stage());
  }
}

template <int kBlocks, bool kDropout>
static __global__ void __launch_bounds__(QueriesWalk<kBlocks>::kThreads, 1)
    wgmma_queries_kernel(Bf16* dqkv, bool accumulate, const float* lse, float* statistics,
                         const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap dout,
                         const __grid_constant__ TensorMap out, const __grid_constant__ WgmmaCall call) {
  using W = QueriesWalk<kBlocks>;
  using Memory = typename W::Memory;
  STAGEGPT_SHARED_STRUCT(Memory, memory);
  W::init(memory);
  if (warpgroup_index() == W::kWarpgroups)
    return W::copy(memory, call, {{&qkv, 0}, {&dout, 0}, {&out, 0}}, {{&qkv, 1}, {&qkv, 2}}, nullptr);

  const auto work = [&](int place, int steps, auto& own, const auto& full, auto& ring) {
    const auto [head, row] = W::rows_at(call, place);
    QueryRows rows;
    STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
      const int t = row + accumulator_row(2 * r);
      rows.log2_lse[r] = t < call.T ? -kLog2E * lse[static_cast<std::int64_t>(head) * call.T + t] : -INFINITY;
    }
    full.wait();
    set_dots(rows, own[1], own[2]);
    STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
      if (lane_index() % 4 != 0) continue;
      float* to =
          statistics + static_cast<std::int64_t>(head) * call.padded_rows() + row + accumulator_row(2 * r);
      to[0] = rows.log2_lse[r];
      to[static_cast<std::int64_t>(call.heads) * call.padded_rows()] = rows.dot[r];
    }
    Accumulator dq[kBlocks];
    add_keys<kBlocks, kDropout>(call, head, memory, own[0], own[1], ring, steps, rows, dq);
    named_barrier(1 + warpgroup_index(), kWarpgroup);  // all have finished with the queries
    const std::int64_t ld = 3 * call.channels();
    write_rows(dqkv + head_begin(call, head, 0, 3), ld, accumulate, dq, call.scale, call.scale, own[0], row,
               call);
  };
  W::compute(memory, call, work);
}

// Turns s into p, from -lse·log2 e of the queries, which are columns. `diagonal`: without earlier queries.
__device__ inline void powers_of_columns(Accumulator& s, float c, const SharedFloats<kTileRows>& log2_lse,
                                         bool diagonal) {
  STAGEGPT_UNROLL for (int j = 0; j < 32; j += 4) {
    const Float2 shift = log2_lse.pair(accumulator_column(j));
    STAGEGPT_UNROLL for (int e = j; e < j + 4; ++e) {
      s[e] = exp2_approx(fmaf(s[e], c, e % 2 == 0 ? shift.x : shift.y));
    }
  }
  if (!diagonal) return;
  STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) {
    if (accumulator_column(e) < accumulator_row(e)) s[e] = 0;
  }
}

// Turns dp into ds, from p of its elements and D of the queries. p(e): of elements e and e + 1.
template <class P>
__device__ void score_gradients(Accumulator& dp, const P& p, const SharedFloats<kTileRows>& dots) {
  STAGEGPT_UNROLL for (int j = 0; j < 32; j += 4) {
    const Float2 dot = dots.pair(accumulator_column(j));
    STAGEGPT_UNROLL for (int e = j; e < j + 4; e += 2) {
      const Float2 two = p(e);
      dp[e] = two.x * (dp[e] - dot.x);
      dp[e + 1] = two.y * (dp[e + 1] - dot.y);
    }
  }
}

// Walks over the queries of 64 keys. Rows of products are keys, columns are queries. Without dropout p is
// used as it is in the operand, so that s needs no registers any more, and dv's product is under way
// meanwhile.
template <int kBlocks, bool kDropout, class W = KeysWalk<kBlocks>>
__device__ void add_queries(const WgmmaCall& call, int place, typename W::Memory& memory,
                            const SharedTile (&k)[kBlocks], const SharedTile (&v)[kBlocks],
                            typename W::Stages& ring, int steps, Accumulator (&dk)[kBlocks],
                            Accumulator (&dv)[kBlocks]) {
  Accumulator s, dp;
  Operand p, ds;
  set_zero(dk);
  set_zero(dv);
  for (int step = 0; step < steps; ++step, ring.next()) {
    memory.full[ring.stage()].wait(ring.parity());
    const auto& [q, dy] = memory.walked[ring.stage()];
    const auto& [log2_lse, dots] = memory.statistics[ring.stage()];
    wgmma_fence(s, dp);
    multiply(s, k, q);
    multiply(dp, v, dy);
    if constexpr (kDropout) {
      const auto [head, row] = W::rows_at(call, place);
      const unsigned kept = kept_scores<true>(call, head, row + kTileRows * step, row);
      wgmma_wait<0>(s, dp);
      powers_of_columns(s, call.log2_scale, log2_lse, step == 0);
      drop_gradients(dp, kept, call.dropout.kept());
      score_gradients(
          dp,
          [&](int e) {
            return Float2{s[e], s[e + 1]};
          },
          dots);
      drop(s, kept);
      p.round(s);
      wgmma_fence(p, dv);
      add_product(dv, p, dy);
    } else {
      wgmma_wait<1>(s);
      powers_of_columns(s, call.log2_scale, log2_lse, step == 0);
      p.round(s);
      wgmma_fence(p, dv);
      add_product(dv, p, dy);
      wgmma_wait<1>(dp);
      score_gradients(
          dp,
          [&](int e) {
            const Bf16Pair pair = p.pair(e / 8, e / 2 % 4);
            return Float2{first_of(pair), second_of(pair)};
          },
          dots);
    }
    ds.round(dp);
    wgmma_fence(ds, dk);
    add_product(dk, ds, q);
    wgmma_wait<0>(dk, dv, p, ds);
    W::release(memory, ring.stage());
  }
}

template <int kBlocks, bool kDropout>
static __global__ void __launch_bounds__(KeysWalk<kBlocks>::kThreads, 1)
    wgmma_keys_kernel(Bf16* dqkv, bool accumulate, const float* statistics,
                      const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap dout,
                      const __grid_constant__ WgmmaCall call) {
  using W = KeysWalk<kBlocks>;
  using Memory = typename W::Memory;
  STAGEGPT_SHARED_STRUCT(Memory, memory);
  W::init(memory);
  if (warpgroup_index() == W::kWarpgroups)
    return W::copy(memory, call, {{&qkv, 1}, {&qkv, 2}}, {{&qkv, 0}, {&dout, 0}}, statistics);

  const auto work = [&](int place, int steps, auto& own, const auto& full, auto& ring) {
    Accumulator dk[kBlocks], dv[kBlocks];
    full.wait();
    add_queries<kBlocks, kDropout>(call, place, memory, own[0], own[1], ring, steps, dk, dv);
    // All have finished with the keys and values.
    named_barrier(1 + warpgroup_index(), kWarpgroup);
    const auto [head, row] = W::rows_at(call, place);
    const std::int64_t ld = 3 * call.channels();
    Bf16* const to = dqkv + head_begin(call, head, 1, 3);
    write_rows(to, ld, accumulate, dk, call.scale, call.scale, own[0], row, call);
    const float factor = kDropout ? call.dropout.kept() : 1;
    write_rows(to + call.channels(), ld, accumulate, dv, factor, factor, own[1], row, call);
  };
  W::compute(memory, call, work);
}

// `statistics` has 2·B·NH·padded_rows() elements.
template <int kBlocks, bool kDropout>
void wgmma_backward(StreamHandle stream, Bf16* dqkv, bool accumulate, const Bf16* dout, const Bf16* out,
                    const float* lse, const Bf16* qkv, const AttentionSize& s, const Dropout& dropout,
                    float* statistics) {
  const TensorMap qkv_map = tensor_map(qkv, 3, s), dout_map = tensor_map(dout, 1, s);
  using Queries = QueriesWalk<kBlocks>;
  const WgmmaCall for_queries = wgmma_call<Queries>(s, dropout);
  launch<wgmma_queries_kernel<kBlocks, kDropout>>(
      wgmma_grid(for_queries), dim3(Queries::kThreads), shared_bytes_of<typename Queries::Memory>(), stream,
      dqkv, accumulate, lse, statistics, qkv_map, dout_map, tensor_map(out, 1, s), for_queries);
  using Keys = KeysWalk<kBlocks>;
  const WgmmaCall for_keys = wgmma_call<Keys>(s, dropout);
  launch<wgmma_keys_kernel<kBlocks, kDropout>>(
      wgmma_grid(for_keys), dim3(Keys::kThreads), shared_bytes_of<typename Keys::Memory>(), stream, dqkv,
      accumulate, static_cast<const float*>(statistics), qkv_map, dout_map, for_keys);
}

}  // namespace stagegpt::gpu
