// Sums over rows, out[c] = Σ_n in[n][c]: the gradients of biases, and the last step of those of LayerNorm's
// parameters (layernorm_backward.cuh).
//
// A block has some rows of 32·V columns, V per thread: warp j adds rows j, j + 8, …, then one thread per
// column adds the eight sums. The block that finishes last among those of its columns adds the sums of all of
// them. So many blocks work on a column, and yet the order of its sum is fixed.
#pragma once

#include <algorithm>

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// How the rows are divided among blocks.
struct ColumnSums {
  static constexpr std::int64_t kMostChunks = 128, kLeastRows = 64;

  std::int64_t rows, chunks;  // of a block; at least one chunk

  explicit ColumnSums(std::int64_t N)
      : rows(std::max(kLeastRows, parts(N, kMostChunks))),
        chunks(std::max<std::int64_t>(1, parts(N, rows))) {}

  // Number of floats that blocks leave for the last one, and an upper bound of the number of counters.
  std::int64_t scratch_size(std::int64_t columns) const { return chunks * columns; }
  static std::int64_t counters(std::int64_t columns) { return parts(columns, kWarp); }
};

// in (N,columns); scratch (chunks,columns). The first C sums go to `out`, the others to `rest`; either may be
// null.
template <class T, int V>
static __global__ void column_sums_kernel(float* out, bool accumulate, float* rest, bool accumulate_rest,
                                          const T* in, std::int64_t N, std::int64_t C, std::int64_t columns,
                                          std::int64_t rows, float* scratch, int* finished) {
  constexpr int kWarps = kThreads / kWarp, kColumns = kWarp * V;
  STAGEGPT_SHARED(float, warp_sums, kWarps* kColumns);
  const int place = lane_index() * V, warp = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kColumns, chunk = blockIdx.y,
                     chunks = gridDim.y;
  Floats<V> own = {};
  for (std::int64_t n = chunk * rows + warp; n < (chunk + 1) * rows && n < N && begin + place < columns;
       n += kWarps) {
    const Floats<V> value = load<V>(in, n * columns + begin + place);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) own.v[j] += value.v[j];
  }
  store_floats(warp_sums, warp * kColumns + place, own);
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  const std::int64_t c = begin + column;
  const bool has_column = column < kColumns && c < columns;
  if (has_column) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += warp_sums[w * kColumns + column];
    scratch[chunk * columns + c] = sum;
  }
  if (!is_last_block(finished + blockIdx.x, chunks) || !has_column) return;
  float sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i) sum += scratch[i * columns + c];
  if (c < C && out) put(out, c, sum, accumulate);
  if (c >= C && rest) put(rest, c - C, sum, accumulate_rest);
}

// `scratch` has scratch_size elements, `finished` one zero for each counter; it is zero again afterwards.
template <class T>
void column_sums(StreamHandle stream, float* out, bool accumulate, float* rest, bool accumulate_rest,
                 const T* in, std::int64_t N, std::int64_t C, std::int64_t columns, float* scratch,
                 int* finished) {
  const ColumnSums division(N);
  const auto launch_sums = [&]<int V>(std::integral_constant<int, V>) {
    const dim3 grid(static_cast<unsigned>(parts(columns, kWarp * V)), static_cast<unsigned>(division.chunks));
    launch<column_sums_kernel<T, V>>(grid, dim3(kThreads), 0, stream, out, accumulate, rest, accumulate_rest,
                                     in, N, C, columns, division.rows, scratch, finished);
  };
  if (in_vectors<kVector<T>>(columns, in)) return launch_sums(std::integral_constant<int, kVector<T>>());
  launch_sums(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
