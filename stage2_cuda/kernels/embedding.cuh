// Embedding: out[b][t] = wte[ids[b][t]] + wpe[p + t], p = *position, 0 without it.
// Backward:  dwte[v] = Σ over (b,t) with ids[b][t] = v of dout[b][t],   dwpe[t] = Σ_b dout[b][t].
// The id `rows`, one past the last row of wte, is that of a token without a row, and wpe may be absent: both
// then count as zero.
//
// Forward, and dwpe (which adds over b): one thread per element, or per V elements if rows are aligned.
//
// dwte: the tokens are sorted by id (sort_tokens.cuh), so that those with the same id are neighbours, a run.
// A block adds the rows of kRunTile sorted tokens, in order. It adds the sum of a run to dwte if it has all
// of the run, and otherwise writes it to `parts`; at most the first and the last run of a tile are not
// complete. A second launch adds these sums, tile after tile. So no two blocks add to the same row, the order
// of a sum is fixed by the ids, and blocks have the same work whatever the ids are. Work: tokens · C
// additions, and at most 2 · tokens/kRunTile · C for runs of several tiles. An id with all tokens needs
// tokens/kRunTile additions one after the other. Launches: two for each 8 bits of the ids, then two.
#pragma once

#include "stage2_cuda/kernels/sort_tokens.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

inline constexpr std::int64_t kRunTile = 64;

struct EmbeddingSize {
  std::int64_t B, T, C;
  std::int64_t rows;  // of wte

  std::int64_t tokens() const { return B * T; }
  // Number of floats for the sums of runs that several tiles share.
  std::int64_t parts_size() const { return 2 * parts(tokens(), kRunTile) * C; }
};

// out = in - first, or `absent` where that is not in [0, count).
static __global__ void ids_in_part_kernel(std::int32_t* out, const std::int32_t* in, std::int64_t first,
                                          std::int64_t count, std::int64_t absent, std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const std::int64_t id = in[i] - first;
  out[i] = static_cast<std::int32_t>(id >= 0 && id < count ? id : absent);
}

// wte may be bf16 where the others are f32. One thread for each of n vectors.
template <class T, class Weight, int V>
static __global__ void embedding_forward_kernel(T* out, const std::int32_t* ids, const Weight* wte,
                                                const T* wpe, const std::int32_t* position, EmbeddingSize s,
                                                std::int64_t n) {
  const std::int64_t i = thread_index() * V;
  if (i >= n * V) return;
  const std::int64_t row = i / s.C, c = i % s.C;
  Floats<V> token = {}, place = {}, sum;
  if (ids[row] < s.rows) token = load<V>(wte, ids[row] * s.C + c);
  if (wpe != nullptr) place = load<V>(wpe, ((position ? *position : 0) + row % s.T) * s.C + c);
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] = token.v[j] + place.v[j];
  store<V>(out, i, sum);
}

template <class T, class Weight>
void embedding_forward(StreamHandle stream, T* out, const std::int32_t* ids, const Weight* wte, const T* wpe,
                       const std::int32_t* position, EmbeddingSize s) {
  constexpr int kV = std::max(kVector<T>, kVector<Weight>);
  const std::int64_t n = s.tokens() * s.C;
  if (in_vectors<kV>(s.C, out, wte, wpe))
    return launch_elements<embedding_forward_kernel<T, Weight, kV>>(stream, n / kV, out, ids, wte, wpe,
                                                                    position, s);
  launch_elements<embedding_forward_kernel<T, Weight, 1>>(stream, n, out, ids, wte, wpe, position, s);
}

// dwpe (P,C), of which the first `with_tokens` elements, T·C, have a gradient. One thread for each of n
// vectors; with `accumulate` only the first T rows have threads.
template <class T, int V>
static __global__ void embedding_backward_positions_kernel(float* dwpe, bool accumulate, const T* dout,
                                                           std::int64_t B, std::int64_t with_tokens,
                                                           std::int64_t n) {
  const std::int64_t i = thread_index() * V;  // t · C + c
  if (i >= n * V) return;
  Floats<V> sum = {};
  for (std::int64_t b = 0; b < B && i < with_tokens; ++b) {
    const Floats<V> d = load<V>(dout, b * with_tokens + i);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += d.v[j];
  }
  if (accumulate) {
    const Floats<V> before = load<V>(dwpe, i);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += before.v[j];
  }
  store<V>(dwpe, i, sum);
}

// Overwrites or accumulates dwpe (P,C).
template <class T>
void embedding_backward_positions(StreamHandle stream, float* dwpe, bool accumulate, std::int64_t P,
                                  const T* dout, EmbeddingSize s) {
  constexpr int kV = kVector<T>;
  const std::int64_t with_tokens = s.T * s.C, n = accumulate ? with_tokens : P * s.C;
  if (in_vectors<kV>(s.C, dwpe, dout)) {
    return launch_elements<embedding_backward_positions_kernel<T, kV>>(stream, n / kV, dwpe, accumulate, dout,
                                                                       s.B, with_tokens);
  }
  launch_elements<embedding_backward_positions_kernel<T, 1>>(stream, n, dwpe, accumulate, dout, s.B,
                                                             with_tokens);
}

// The id at a place of the sorted tokens.
struct SortedIds {
  const std::int32_t *ids, *order;
  std::int64_t n;

  __device__ std::int32_t at(std::int64_t place) const { return ids[order[place]]; }
  // Whether the tokens before and after the border of two places are of the same run.
  __device__ bool joined_at(std::int64_t border) const {
    return border > 0 && border < n && at(border - 1) == at(border);
  }
  // The first place after `place` with a larger id.
  __device__ std::int64_t end_of_run(std::int64_t place) const {
    const std::int32_t id = at(place);
    std::int64_t end = n;
    while (end - place > 1) {
      const std::int64_t middle = place + (end - place) / 2;
      (at(middle) == id ? place : end) = middle;
    }
    return end;
  }
};

template <int V>
__device__ void add_to(float* out, std::int64_t i, const Floats<V>& f) {
  Floats<V> sum = load<V>(out, i);
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += f.v[j];
  store<V>(out, i, sum);
}

// Adds the runs of a tile to dwte, but for that of the tokens without a row. parts (tiles, 2, C): the sums of
// a first run that began in an earlier tile, and of a last run that goes on in the next one and began here.
template <class T, int V>
static __global__ void embedding_backward_tiles_kernel(float* dwte, float* parts, const T* dout,
                                                       const std::int32_t* ids, const std::int32_t* order,
                                                       std::int64_t n, std::int64_t C,
                                                       std::int64_t table_rows) {
  constexpr int kAtOnce = 4;  // rows that a thread loads before it adds them
  STAGEGPT_SHARED(int, tokens, kRunTile);
  STAGEGPT_SHARED(int, rows, kRunTile);
  const std::int64_t tile = blockIdx.x, begin = tile * kRunTile;
  const int count = static_cast<int>(begin + kRunTile < n ? kRunTile : n - begin);
  const SortedIds sorted{ids, order, n};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const std::int32_t token = order[begin + i];
    tokens[i] = token;
    rows[i] = ids[token];
  }
  __syncthreads();
  const bool began_before = sorted.joined_at(begin), goes_on = sorted.joined_at(begin + count);
  for (std::int64_t c = threadIdx.x * V; c < C; c += static_cast<std::int64_t>(blockDim.x) * V) {
    Floats<V> sum = {};
    bool first_run = true;
    for (int i = 0; i < count; i += kAtOnce) {
      Floats<V> d[kAtOnce];
      STAGEGPT_UNROLL for (int j = 0; j < kAtOnce; ++j) {
        const std::int64_t token = tokens[i + j < count ? i + j : count - 1];
        d[j] = load<V>(dout, token * C + c);
      }
      STAGEGPT_UNROLL for (int j = 0; j < kAtOnce; ++j) {
        if (i + j >= count) continue;
        STAGEGPT_UNROLL for (int k = 0; k < V; ++k) sum.v[k] += d[j].v[k];
        const int row = rows[i + j];
        const bool last = i + j + 1 == count;
        if (!last && rows[i + j + 1] == row) continue;
        if (first_run && began_before) {
          store<V>(parts, 2 * tile * C + c, sum);
        } else if (last && goes_on) {
          store<V>(parts, (2 * tile + 1) * C + c, sum);
        } else if (row < table_rows) {
          add_to<V>(dwte, row * C + c, sum);
        }
        sum = {};
        first_run = false;
      }
    }
  }
}

// One block per tile: it exits unless a run begins in its tile and ends in another one.
template <int V>
static __global__ void embedding_backward_runs_kernel(float* dwte, const float* parts,
                                                      const std::int32_t* ids, const std::int32_t* order,
                                                      std::int64_t n, std::int64_t C,
                                                      std::int64_t table_rows) {
  const std::int64_t tile = blockIdx.x, begin = tile * kRunTile, end = begin + kRunTile;
  const SortedIds sorted{ids, order, n};
  if (!sorted.joined_at(end)) return;
  const std::int32_t id = sorted.at(end);
  if (id >= table_rows) return;
  if (sorted.joined_at(begin) && sorted.at(begin) == id) return;
  const std::int64_t last_tile = (sorted.end_of_run(end) - 1) / kRunTile;
  for (std::int64_t c = threadIdx.x * V; c < C; c += static_cast<std::int64_t>(blockDim.x) * V) {
    Floats<V> sum = load<V>(parts, (2 * tile + 1) * C + c);
    for (std::int64_t other = tile + 1; other <= last_tile; ++other) {
      const Floats<V> part = load<V>(parts, 2 * other * C + c);
      STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += part.v[j];
    }
    add_to<V>(dwte, id * C + c, sum);
  }
}

// Adds to dwte. `order` sorts the tokens by id; `parts` has parts_size() elements.
template <class T>
void embedding_backward_tokens(StreamHandle stream, float* dwte, const T* dout, const std::int32_t* ids,
                               const std::int32_t* order, float* parts, EmbeddingSize s) {
  const auto launch_both = [&]<int V>(std::integral_constant<int, V>) {
    const dim3 grid = blocks(s.tokens(), kRunTile);
    const dim3 block(static_cast<unsigned>(
        std::min<std::int64_t>(kThreads, gpu::parts(gpu::parts(s.C, V), kWarp) * kWarp)));
    launch<embedding_backward_tiles_kernel<T, V>>(grid, block, 0, stream, dwte, parts, dout, ids, order,
                                                  s.tokens(), s.C, s.rows);
    launch<embedding_backward_runs_kernel<V>>(grid, block, 0, stream, dwte, static_cast<const float*>(parts),
                                              ids, order, s.tokens(), s.C, s.rows);
  };
  if (in_vectors<kVector<T>>(s.C, dwte, dout, parts))
    return launch_both(std::integral_constant<int, kVector<T>>());
  launch_both(std::integral_constant<int, 1>());
}

}  // namespace stagegpt::gpu
