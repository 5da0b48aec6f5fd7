// Sorts tokens by id; tokens with the same id stay in order. A radix sort by digits of 8 bits, the lowest
// first, where each digit is a counting sort:
//   place of a token = Σ tokens with a lower digit + Σ earlier tokens with the same digit.
//
// Two launches per digit: 4 for ids below 65,536. A block has a tile of the tokens, a warp consecutive ones
// of them, and thread d counts digit d. The first launch counts the digits of each tile; the second adds the
// counts of the tiles before, and of the warps before, and then places 32 tokens at a time. Lanes with the
// same digit find each other by one ballot for each of its bits. There are at most kMost tiles, so that the
// work is proportional to the number of tokens. It uses no atomics: the order is that of the definition.
#pragma once

#include <algorithm>
#include <bit>

#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

inline constexpr int kDigitBits = 8, kDigitValues = 1 << kDigitBits;
static_assert(kDigitValues == kThreads);  // a thread for each value

// How tokens are divided among blocks.
struct SortTiles {
  static constexpr std::int64_t kMost = 64, kLeastTokens = 1024;

  std::int64_t tokens, count;  // of a tile, a multiple of kThreads; of tiles

  explicit SortTiles(std::int64_t n)
      : tokens(std::max(kLeastTokens, parts(parts(n, kMost), kThreads) * kThreads)),
        count(parts(n, tokens)) {}

  // Number of integers: two orders of n tokens, and the counts of all tiles.
  std::int64_t scratch_size(std::int64_t n) const { return 2 * n + count * kDigitValues; }
};

// Calls visit(token, digit, peers) for 32 tokens of this warp at a time: `peers` has the lanes whose token
// has this digit, and none in a lane without a token. `order` is null if the tokens are still in their own
// order.
template <class Visit>
__device__ void for_own_tokens(const std::int32_t* order, const std::int32_t* ids, std::int64_t n,
                               std::int64_t tile, int shift, const Visit& visit) {
  const std::int64_t own = tile / (kThreads / kWarp);
  const std::int64_t begin = blockIdx.x * tile + threadIdx.x / kWarp * own;
  for (std::int64_t first = begin; first < begin + own && first < n; first += kWarp) {
    const std::int64_t i = first + lane_index();
    const bool exists = i < n;
    std::int32_t token = 0;
    if (exists) token = order ? order[i] : static_cast<std::int32_t>(i);
    const int digit = exists ? ids[token] >> shift & (kDigitValues - 1) : 0;
    unsigned peers = __ballot_sync(kAllLanes, exists);
    STAGEGPT_UNROLL for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool set = (digit >> bit & 1) != 0;
      const unsigned lanes = __ballot_sync(kAllLanes, set);
      peers &= set ? lanes : ~lanes;
    }
    visit(token, digit, exists ? peers : 0u);
    __syncwarp();
  }
}

__device__ inline unsigned lanes_before() { return (1u << lane_index()) - 1; }

// counts (warps, digits) of the block's tile, in shared memory.
template <class Shared>
__device__ void count_own_digits(Shared& counts, const std::int32_t* order, const std::int32_t* ids,
                                 std::int64_t n, std::int64_t tile, int shift) {
  const int own = static_cast<int>(threadIdx.x / kWarp) * kDigitValues;
  for (int w = 0; w < kThreads / kWarp; ++w) counts[w * kDigitValues + static_cast<int>(threadIdx.x)] = 0;
  __syncthreads();
  for_own_tokens(order, ids, n, tile, shift, [&](std::int32_t, int digit, unsigned peers) {
    if (peers != 0 && (peers & lanes_before()) == 0) counts[own + digit] += __popc(peers);
  });
  __syncthreads();
}

// counts (tiles, digits).
static __global__ void count_digits_kernel(std::int32_t* counts, const std::int32_t* order,
                                           const std::int32_t* ids, std::int64_t n, std::int64_t tile,
                                           int shift) {
  STAGEGPT_SHARED(int, of_warps, kThreads / kWarp * kDigitValues);
  count_own_digits(of_warps, order, ids, n, tile, shift);
  const int digit = static_cast<int>(threadIdx.x);
  int sum = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) sum += of_warps[w * kDigitValues + digit];
  counts[blockIdx.x * kDigitValues + digit] = sum;
}

// The sum of `value` over the threads of the block before this one.
__device__ inline int sum_of_threads_before(int value) {
  STAGEGPT_SHARED(int, of_warps, kThreads / kWarp);
  int sum = value;  // over this lane and those before
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = __shfl_sync(kAllLanes, sum, (lane_index() - distance) & (kWarp - 1));
    if (lane_index() >= distance) sum += other;
  }
  if (lane_index() == kWarp - 1) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(threadIdx.x / kWarp); ++w) sum += of_warps[w];
  return sum - value;
}

static __global__ void place_tokens_kernel(std::int32_t* sorted, const std::int32_t* counts,
                                           const std::int32_t* order, const std::int32_t* ids, std::int64_t n,
                                           std::int64_t tile, int shift) {
  STAGEGPT_SHARED(int, places, kThreads / kWarp * kDigitValues);  // of a warp's next token with a digit
  count_own_digits(places, order, ids, n, tile, shift);
  const int thread = static_cast<int>(threadIdx.x);
  int before = 0, all = 0;  // tokens with this thread's digit
  for (unsigned t = 0; t < gridDim.x; ++t) {
    const int count = counts[t * kDigitValues + threadIdx.x];
    if (t < blockIdx.x) before += count;
    all += count;
  }
  int place = sum_of_threads_before(all) + before;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    const int count = places[w * kDigitValues + thread];
    places[w * kDigitValues + thread] = place;
    place += count;
  }
  __syncthreads();
  const int own = thread / kWarp * kDigitValues;
  for_own_tokens(order, ids, n, tile, shift, [&](std::int32_t token, int digit, unsigned peers) {
    const int earlier = __popc(peers & lanes_before());
    if (peers != 0) sorted[places[own + digit] + earlier] = token;
    __syncwarp();
    if (peers != 0 && earlier == 0) places[own + digit] += __popc(peers);
  });
}

// The order of n tokens whose ids (n) are below `rows`: the token at each place. It is in `scratch`, which
// has SortTiles(n).scratch_size(n) elements.
inline const std::int32_t* sort_tokens(StreamHandle stream, const std::int32_t* ids, std::int64_t n,
                                       std::int64_t rows, std::int32_t* scratch) {
  const SortTiles tiles(n);
  std::int32_t* const orders[] = {scratch, scratch + n};
  std::int32_t* const counts = scratch + 2 * n;
  const int bits = std::bit_width(static_cast<std::uint64_t>(rows - 1));
  const std::int32_t* order = nullptr;
  for (int digit = 0; digit == 0 || digit * kDigitBits < bits; ++digit) {
    const dim3 grid(static_cast<unsigned>(tiles.count)), block(kThreads);
    const int shift = digit * kDigitBits;
    launch<count_digits_kernel>(grid, block, 0, stream, counts, order, ids, n, tiles.tokens, shift);
    launch<place_tokens_kernel>(grid, block, 0, stream, orders[digit % 2],
                                static_cast<const std::int32_t*>(counts), order, ids, n, tiles.tokens, shift);
    order = orders[digit % 2];
  }
  return order;
}

}  // namespace stagegpt::gpu
