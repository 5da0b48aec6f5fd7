// A token of each row of n logits x, drawn at u, which is uniform in [0, 1):
//   p_i = exp((x_i - max x)/temperature),   id = the first i for which Σ_{j <= i} p_j > u·Σ_j p_j.
// Sums are in f64, so that their order hardly ever changes the token.
//
// Each block leaves the maximum of its logits, and the sum of its p relative to it. The block of a row that
// finishes last adds the sums until they exceed u·Σp, and finds the token in the block where they do.
#pragma once

#include "common/random/philox.h"
#include "stage2_cuda/kernels/largest_logits.cuh"

namespace stagegpt::gpu {

struct DrawSize {
  std::int64_t rows, columns, vocabulary;  // the first `vocabulary` of the columns are the logits
  double temperature;
  RandomKey key;  // of row 0; the step of row b is greater by b
  std::uint64_t element;

  __host__ __device__ std::int64_t blocks_of_row() const { return parts(vocabulary, kLogitsOfBlock); }
  std::int64_t scratch_size() const { return 2 * rows * blocks_of_row(); }  // of f64
};

// Σ of the values of the lanes before this one.
__device__ inline double sum_before_lane(double value) {
  double sum = 0;
  for (int lane = 0; lane + 1 < kWarp; ++lane) {
    const double other = __shfl_sync(kAllLanes, value, lane);
    if (lane < lane_index()) sum += other;
  }
  return sum;
}

// Called by all threads of a block. The token among the logits of a part of a row, from `begin` to `end`:
// the first for which `before` and the sum up to it exceed `bound`, or else the last that may be drawn.
__device__ inline std::int32_t token_of_part(const float* logits, std::int64_t begin, std::int64_t end,
                                             double max, double temperature, double before, double bound) {
  constexpr int kOwn = kLogitsOfBlock / kThreads;
  constexpr LogitKey kExceeds = LogitKey{1} << 32;
  STAGEGPT_SHARED(double, of_warps, kThreads / kWarp);
  const std::int64_t first = begin + threadIdx.x * kOwn;
  double p[kOwn], own = 0;
  STAGEGPT_UNROLL for (int i = 0; i < kOwn; ++i) {
    p[i] = first + i < end ? exp((logits[first + i] - max) / temperature) : 0;
    own += p[i];
  }
  const double of_warp = warp_sum(own);
  if (lane_index() == 0) of_warps[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  double sum = before;
  for (int warp = 0; warp < static_cast<int>(threadIdx.x) / kWarp; ++warp) sum += of_warps[warp];
  sum += sum_before_lane(own);
  LogitKey best = 0;
  STAGEGPT_UNROLL for (int i = 0; i < kOwn; ++i) {
    sum += p[i];
    const auto index = static_cast<LogitKey>(first + i);
    const LogitKey key = p[i] == 0 ? 0 : sum > bound ? 2 * kExceeds - index : index + 1;
    best = key > best ? key : best;
  }
  best = block_largest(best);
  return static_cast<std::int32_t>(best > kExceeds ? 2 * kExceeds - best : best - 1);
}

// `maxima` and `sums` (rows,blocks) are what blocks leave.
static __global__ void draw_tokens_kernel(std::int32_t* ids, const float* logits, DrawSize s, double* maxima,
                                          double* sums, int* finished) {
  const std::int64_t row = blockIdx.y, blocks = gridDim.x, part = blockIdx.x;
  const auto end_of = [&](std::int64_t b) {
    return (b + 1) * kLogitsOfBlock < s.vocabulary ? (b + 1) * kLogitsOfBlock : s.vocabulary;
  };
  const auto weight = [&](double x, double max) { return exp((x - max) / s.temperature); };
  logits += row * s.columns;
  maxima += row * blocks;
  sums += row * blocks;

  LogitKey largest = 0;
  for (std::int64_t i = part * kLogitsOfBlock + threadIdx.x; i < end_of(part); i += kThreads) {
    const LogitKey key = logit_key(logits[i], i);
    largest = key > largest ? key : largest;
  }
  const double own_max = logit_of(block_largest(largest));
  double own_sum = 0;
  for (std::int64_t i = part * kLogitsOfBlock + threadIdx.x; i < end_of(part); i += kThreads)
    own_sum += weight(logits[i], own_max);
  own_sum = block_sum<kThreads>(own_sum);
  if (threadIdx.x == 0) {
    maxima[part] = own_max;
    sums[part] = own_sum;
  }
  if (!is_last_block(finished + row, blocks)) return;

  double max = -INFINITY, all = 0, before = 0;
  for (std::int64_t b = 0; b < blocks; ++b) max = fmax(max, maxima[b]);
  for (std::int64_t b = threadIdx.x; b < blocks; b += kThreads) sums[b] *= weight(maxima[b], max);
  __syncthreads();
  for (std::int64_t b = 0; b < blocks; ++b) all += sums[b];
  const RandomKey key{s.key.seed, s.key.stream, s.key.step + static_cast<std::uint32_t>(row)};
  const double bound = random_uniform(key, s.element) * all;
  std::int64_t b = 0;
  while (b + 1 < blocks && before + sums[b] <= bound) before += sums[b++];
  const std::int32_t id =
      token_of_part(logits, b * kLogitsOfBlock, end_of(b), max, s.temperature, before, bound);
  // A part with a logit that is not finite has the maximum NaN, and so no finite sum.
  if (threadIdx.x == 0) ids[row] = all < INFINITY ? id : -1;
}

// `scratch` has scratch_size() elements; `finished` has a zero for each row, which it has again afterwards.
inline void draw_tokens(StreamHandle stream, std::int32_t* ids, const float* logits, const DrawSize& s,
                        double* scratch, int* finished) {
  const auto grid = dim3(static_cast<unsigned>(s.blocks_of_row()), static_cast<unsigned>(s.rows));
  launch<draw_tokens_kernel>(grid, dim3(kThreads), 0, stream, ids, logits, s, scratch,
                             scratch + s.rows * s.blocks_of_row(), finished);
}

}  // namespace stagegpt::gpu
