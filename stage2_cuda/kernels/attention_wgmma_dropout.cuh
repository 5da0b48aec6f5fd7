// Dropout of the scores in attention_wgmma.cuh. Whether a score is kept depends on its random word alone
// (dropout.cuh), so the three kernels compute the words of a tile again: a bit for each element of an
// accumulator. A block of four words belongs to four neighbouring keys, which several lanes have; each block
// is computed by one of them.
#pragma once

#include "stage2_cuda/kernels/attention_wgmma.cuh"

namespace stagegpt::gpu {

// Bit i: whether word i of a block is kept.
__device__ inline unsigned kept_of_block(const WgmmaCall& call, const RandomKey& key, std::uint64_t element) {
  const auto words = philox(key, element / 4);
  unsigned kept = 0;
  STAGEGPT_UNROLL for (unsigned i = 0; i < 4; ++i) kept |= (words[i] >= call.dropped_words ? 1U : 0U) << i;
  return kept;
}

// Rows are queries. Of the blocks of two neighbouring lanes, the even lane computes that of the upper row,
// the odd one that of the lower row. `first`: the first element of the thread's block in the tile's first
// eight columns.
__device__ inline unsigned kept_of_queries(const WgmmaCall& call, const RandomKey& key, std::uint64_t first) {
  const bool odd = lane_index() % 2 != 0;
  unsigned bits = 0;
  STAGEGPT_UNROLL for (int j = 0; j < 8; ++j) {
    const unsigned mine = kept_of_block(call, key, first + static_cast<std::uint64_t>(8 * j));
    const unsigned other = __shfl_xor_sync(kAllLanes, mine, 1);
    const unsigned upper = odd ? other >> 2 : mine & 3, lower = odd ? mine >> 2 : other & 3;
    bits |= (upper | lower << 2) << (4 * j);
  }
  return bits;
}

// Rows are keys. Four lanes with neighbouring rows have four blocks: lane i of them computes that of column
// i % 2 and, if i >= 2, of the lower row.
__device__ inline unsigned kept_of_keys(const WgmmaCall& call, const RandomKey& key, std::uint64_t first) {
  const int lane = lane_index(), row = lane / 4 % 4;
  unsigned bits = 0;
  STAGEGPT_UNROLL for (int j = 0; j < 8; ++j) {
    const unsigned mine = kept_of_block(call, key, first + static_cast<std::uint64_t>(8 * j) * call.T);
    STAGEGPT_UNROLL for (int i = 0; i < 4; ++i) {
      const unsigned block = __shfl_sync(kAllLanes, mine, (lane & 0x13) | i << 2);
      bits |= (block >> row & 1) << (4 * j + i);
    }
  }
  return bits;
}

// Bit e: whether the score at element e of an accumulator is kept, in the tile of queries t0, t0 + 1, … and
// keys u0, u0 + 1, … of a head. kKeysInRows: rows of the accumulator are keys, columns are queries.
template <bool kKeysInRows>
__device__ unsigned kept_scores(const WgmmaCall& call, int head, int t0, int u0) {
  const DropoutMap map = call.dropout.map();
  const auto T = static_cast<std::uint64_t>(call.T);
  const std::uint64_t begin = map.element(static_cast<std::int64_t>(head) * call.T * call.T);
  const auto element = [&](int t, int u) {
    return begin + static_cast<std::uint64_t>(t0 + t) * T + static_cast<std::uint64_t>(u0 + u);
  };
  if (!call.dropout_in_blocks) {
    unsigned bits = 0;
    STAGEGPT_NO_UNROLL for (int e = 0; e < 32; ++e) {
      const int row = accumulator_row(e), column = accumulator_column(e);
      const std::uint64_t i = kKeysInRows ? element(column, row) : element(row, column);
      bits |= (random_word(map.key, i) >= call.dropped_words ? 1U : 0U) << e;
    }
    return bits;
  }
  const int lane = lane_index(), row = accumulator_row(0);
  if constexpr (kKeysInRows) {
    const int i = lane / 4 % 4;
    return kept_of_keys(call, map.key, element(accumulator_column(0) + i % 2, row - i + i / 2 * 8));
  } else {
    return kept_of_queries(call, map.key, element(row + lane % 2 * 8, lane % 4 / 2 * 4));
  }
}

// Sets the elements to zero that are not kept.
__device__ inline void drop(Accumulator& scores, unsigned kept) {
  STAGEGPT_UNROLL for (int e = 0; e < 32; ++e) scores[e] = (kept >> e & 1) != 0 ? scores[e] : 0;
}

}  // namespace stagegpt::gpu
