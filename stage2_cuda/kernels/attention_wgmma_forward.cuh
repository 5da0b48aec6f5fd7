// The forward of flash attention for compute capability 9.0 (attention_wgmma.cuh). A warpgroup has 64 queries
// and walks over the keys from the tile with the diagonal to the first one.
//
// The softmax is that of attention_flash.cuh, in powers of two, but it subtracts m, the maximum of the tile
// with the diagonal, in all tiles: p = 2^(c·(s - m)), c = scale · log2 e. So there is no maximum and no
// rescaling in the loop. This is exact as long as the sums of a tile's p stay below 2^64; if one does not,
// the warp computes the tile's scores again by itself, raises m and rescales. It needs c > 0.
//
// While the tensor cores add p·v of one tile and multiply q·k of the next, the warpgroup computes powers.
#pragma once

#include "stage2_cuda/kernels/attention_wgmma_dropout.cuh"

namespace stagegpt::gpu {

// Heads of at most 64·kBlocks channels. Dropout takes registers.
template <int kBlocks, bool kDropout>
using ForwardWalk =
    Walk<kBlocks, (kBlocks == 1 ? 4 : 3) - (kDropout ? 1 : 0), 1, 2, kBlocks == 1 ? 8 : 3, true>;

// c = a · bᵀ of this warp's rows, by the warp alone.
template <int kBlocks>
__device__ void multiply_by_warp(Accumulator& c, const SharedTile (&a)[kBlocks],
                                 const SharedTile (&b)[kBlocks]) {
  const int lane = lane_index(), row = accumulator_warp_row() + lane % 16;
  STAGEGPT_UNROLL for (int n = 0; n < 8; ++n) {
    FragmentC sums = {};
    STAGEGPT_NO_UNROLL for (int k = 0; k < 4 * kBlocks; k += 2) {
      const int column = 16 * (k % 4);
      const FragmentA right = ldmatrix_x4(b[k / 4], 8 * n + lane % 8, column + lane / 8 * 8);
      mma_m16n8k16(sums, ldmatrix_x4(a[k / 4], row, column + lane / 16 * 8), {right.pair[0], right.pair[1]});
      mma_m16n8k16(sums, ldmatrix_x4(a[k / 4], row, column + 16 + lane / 16 * 8),
                   {right.pair[2], right.pair[3]});
    }
    STAGEGPT_UNROLL for (int e = 0; e < 4; ++e) c[4 * n + e] = sums.v[e];
  }
}

// -c·m and l of the thread's two rows. Of l it has the part of its columns.
struct RowsOfSoftmax {
  float shift[2], sum[2];
};

// -c·(the maximum of a row), of which each of four lanes has a part: row r of the thread.
__device__ inline float shift_of(const Accumulator& s, int r, float c) {
  float highest = s[2 * r];
  STAGEGPT_UNROLL for (int j = 0; j < 32; j += 4) {
    highest = fmaxf(highest, fmaxf(s[j + 2 * r], s[j + 2 * r + 1]));
  }
  return -c * warp_max<4>(highest);
}

// Turns s into p, and writes the sums of the thread's p.
__device__ inline void powers(Accumulator& s, const RowsOfSoftmax& rows, float c, float (&sums)[2]) {
  STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
    float even = 0, odd = 0;
    STAGEGPT_UNROLL for (int j = 2 * r; j < 32; j += 4) {
      even += s[j] = exp2_approx(fmaf(s[j], c, rows.shift[r]));
      odd += s[j + 1] = exp2_approx(fmaf(s[j + 1], c, rows.shift[r]));
    }
    sums[r] = even + odd;
  }
}

// Turns s into p after m has been raised to the maximum of these s, with l rescaled. The rows of out are to
// be multiplied by `factor`.
__device__ inline void powers_with_new_max(Accumulator& s, RowsOfSoftmax& rows, float c, float (&sums)[2],
                                           float (&factor)[2]) {
  STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
    const float shift = fminf(rows.shift[r], shift_of(s, r, c));
    factor[r] = exp2_approx(shift - rows.shift[r]);
    rows.shift[r] = shift;
    rows.sum[r] *= factor[r];
  }
  powers(s, rows, c, sums);
}

// Multiplies the thread's two rows.
template <int kBlocks>
__device__ void scale_rows(Accumulator (&out)[kBlocks], const float (&factor)[2]) {
  STAGEGPT_UNROLL for (int i = 0; i < kBlocks; ++i) {
    STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) out[i][e] *= factor[e / 2 % 2];
  }
}

// Walks over the keys of 64 queries: out without the division by l, and the softmax's rows.
template <int kBlocks, bool kDropout, class W = ForwardWalk<kBlocks, kDropout>>
__device__ void attend(const WgmmaCall& call, int place, typename W::Memory& memory,
                       const SharedTile (&q)[kBlocks], typename W::Stages& ring, int steps,
                       Accumulator (&out)[kBlocks], RowsOfSoftmax& rows) {
  const float c = call.log2_scale;
  // The first query is that of the last tile of keys.
  const auto kept = [&](int tile) {
    return kDropout ? kept_scores<false>(call, W::rows_at(call, place).head, kTileRows * (steps - 1),
                                         kTileRows * tile)
                    : ~0U;
  };
  Accumulator s;
  Operand p;
  set_zero(out);
  memory.full[ring.stage()].wait(ring.parity());
  wgmma_fence(s);
  multiply(s, q, memory.walked[ring.stage()][0]);
  wgmma_wait<0>(s);
  STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) {  // the tile with the diagonal: no later keys
    if (accumulator_column(e) > accumulator_row(e)) s[e] = -INFINITY;
  }
  rows.shift[0] = shift_of(s, 0, c), rows.shift[1] = shift_of(s, 1, c);
  powers(s, rows, c, rows.sum);
  if constexpr (kDropout) drop(s, kept(steps - 1));
  p.round(s);

  int stage = ring.stage();  // of the values that are added next
  ring.next();
  for (int left = steps - 1; left > 0; --left) {
    memory.full[ring.stage()].wait(ring.parity());
    wgmma_fence(s, p, out);
    multiply(s, q, memory.walked[ring.stage()][0]);
    add_product(out, p, memory.walked[stage][1]);
    wgmma_wait<1>(s);
    float sums[2], factor[2];
    powers(s, rows, c, sums);
    constexpr float kLimit = 0x1p64F;
    const bool raise = __ballot_sync(kAllLanes, sums[0] < kLimit && sums[1] < kLimit) != kAllLanes;
    if (raise) {  // in some warps only: a wait of wgmma needs them all
      multiply_by_warp(s, q, memory.walked[ring.stage()][0]);
      powers_with_new_max(s, rows, c, sums, factor);
    }
    wgmma_wait<0>(out, p);
    if (raise) scale_rows(out, factor);
    W::release(memory, stage);
    rows.sum[0] += sums[0], rows.sum[1] += sums[1];
    if constexpr (kDropout) drop(s, kept(left - 1));
    p.round(s);
    stage = ring.stage();
    ring.next();
  }
  wgmma_fence(p, out);
  add_product(out, p, memory.walked[stage][1]);
  wgmma_wait<0>(out, p);
  W::release(memory, stage);
}

template <int kBlocks, bool kDropout>
static __global__ void __launch_bounds__(ForwardWalk<kBlocks, kDropout>::kThreads, 1)
    wgmma_forward_kernel(Bf16* out, float* lse, const __grid_constant__ TensorMap qkv,
                         const __grid_constant__ WgmmaCall call) {
  using W = ForwardWalk<kBlocks, kDropout>;
  using Memory = typename W::Memory;
  STAGEGPT_SHARED_STRUCT(Memory, memory);
  W::init(memory);
  if (warpgroup_index() == W::kWarpgroups)
    return W::copy(memory, call, {{&qkv, 0}}, {{&qkv, 1}, {&qkv, 2}}, nullptr);

  const auto work = [&](int place, int steps, auto& own, const auto& full, auto& ring) {
    Accumulator o[kBlocks];
    RowsOfSoftmax rows;
    full.wait();
    attend<kBlocks, kDropout>(call, place, memory, own[0], ring, steps, o, rows);
    const auto [head, row] = W::rows_at(call, place);
    STAGEGPT_UNROLL for (int r = 0; r < 2; ++r) {
      rows.sum[r] = warp_sum<4>(rows.sum[r]);
      const int t = row + accumulator_row(2 * r);
      if (lane_index() % 4 == 0 && t < call.T) {
        lse[static_cast<std::int64_t>(head) * call.T + t] = kLn2 * (log2f(rows.sum[r]) - rows.shift[r]);
      }
    }
    named_barrier(1 + warpgroup_index(), kWarpgroup);  // all have finished with the queries
    const float factor = kDropout ? call.dropout.kept() : 1;
    write_rows(out + head_begin(call, head, 0, 1), call.channels(), false, o, factor / rows.sum[0],
               factor / rows.sum[1], own[0], row, call);
  };
  W::compute(memory, call, work);
}

template <int kBlocks, bool kDropout>
void wgmma_forward(StreamHandle stream, Bf16* out, float* lse, const Bf16* qkv, const AttentionSize& s,
                   const Dropout& dropout) {
  using W = ForwardWalk<kBlocks, kDropout>;
  const WgmmaCall call = wgmma_call<W>(s, dropout);
  launch<wgmma_forward_kernel<kBlocks, kDropout>>(wgmma_grid(call), dim3(W::kThreads),
                                                  shared_bytes_of<typename W::Memory>(), stream, out, lse,
                                                  tensor_map(qkv, 3, s), call);
}

}  // namespace stagegpt::gpu
