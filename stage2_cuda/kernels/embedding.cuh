// Embedding: out[b][t] = wte[ids[b][t]] + wpe[t].
// Backward:  dwte[v] = Σ over (b,t) with ids[b][t] = v of dout[b][t],   dwpe[t] = Σ_b dout[b][t].
//
// Forward: one thread per element. dwpe: one thread per element, which adds over b. dwte: one block per
// token. The block exits if its token is not the first with its id; otherwise it adds the rows of all tokens
// with this id. So no two blocks write the same row, and the sum is in token order. The block compares
// kThreads ids at a time and lists the equal ones in order (one ballot per warp); then each thread adds
// channels of the listed rows. A kernel before finds the first token of each id.
#pragma once

#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

struct EmbeddingSize {
  std::int64_t B, T, C;
};

// wte may be bf16 where the others are f32.
template <class T, class Weight>
static __global__ void embedding_forward_kernel(T* out, const std::int32_t* ids, const Weight* wte,
                                                const T* wpe, EmbeddingSize s, std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const std::int64_t row = i / s.C, c = i % s.C;
  out[i] = rounded_to<T>(as_float(wte[ids[row] * s.C + c]) + as_float(wpe[row % s.T * s.C + c]));
}

template <class T, class Weight>
void embedding_forward(StreamHandle stream, T* out, const std::int32_t* ids, const Weight* wte, const T* wpe,
                       EmbeddingSize s) {
  launch_elements<embedding_forward_kernel<T, Weight>>(stream, s.B * s.T * s.C, out, ids, wte, wpe, s);
}

// Adds to dwpe (P,C).
template <class T>
static __global__ void embedding_backward_positions_kernel(float* dwpe, const T* dout, std::int64_t B,
                                                           std::int64_t n) {
  const std::int64_t i = thread_index();  // t · C + c
  if (i >= n) return;
  float sum = 0;
  for (std::int64_t b = 0; b < B; ++b) sum += as_float(dout[b * n + i]);
  dwpe[i] += sum;
}

// Writes to `places` the positions in ids[begin, begin + kThreads) that hold `id`, in order. Returns their
// number.
template <class Shared, class Counts>
__device__ int list_equal(Shared& places, Counts& counts, const std::int32_t* ids, std::int64_t begin,
                          std::int64_t n, std::int32_t id) {
  const std::int64_t i = begin + threadIdx.x;
  const bool equal = i < n && ids[i] == id;
  const unsigned lanes = __ballot_sync(kAllLanes, equal);
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  if (lane_index() == 0) counts[warp] = __popc(lanes);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) before += counts[w];
    all += counts[w];
  }
  if (equal) places[before + __popc(lanes & ((1u << lane_index()) - 1))] = static_cast<int>(threadIdx.x);
  __syncthreads();
  return all;
}

// Token i has rank n - i. ranks[id] = the rank of the first token with this id; zero before, and without one.
static __global__ void embedding_first_tokens_kernel(std::int32_t* ranks, const std::int32_t* ids,
                                                     std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i < n) atomicMax(ranks + ids[i], static_cast<std::int32_t>(n - i));
}

// Adds to dwte.
template <class T>
static __global__ void embedding_backward_tokens_kernel(float* dwte, const T* dout, const std::int32_t* ids,
                                                        const std::int32_t* ranks, std::int64_t n,
                                                        std::int64_t C) {
  STAGEGPT_SHARED(int, places, kThreads);
  STAGEGPT_SHARED(int, counts, kThreads / kWarp);
  const std::int64_t token = blockIdx.x;
  const std::int32_t id = ids[token];
  if (ranks[id] != n - token) return;
  for (std::int64_t begin = token; begin < n; begin += kThreads) {
    const int found = list_equal(places, counts, ids, begin, n, id);
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
      float sum = 0;
      for (int i = 0; i < found; ++i) sum += as_float(dout[(begin + places[i]) * C + c]);
      if (found > 0) dwte[id * C + c] += sum;
    }
  }
}

// Adds to the gradients that are not null. dwte needs `ranks`, a zero for each of its rows.
template <class T>
void embedding_backward(StreamHandle stream, float* dwte, float* dwpe, const T* dout, const std::int32_t* ids,
                        std::int32_t* ranks, EmbeddingSize s) {
  const std::int64_t tokens = s.B * s.T;
  if (dwpe) launch_elements<embedding_backward_positions_kernel<T>>(stream, s.T * s.C, dwpe, dout, s.B);
  if (!dwte || tokens == 0) return;
  launch_elements<embedding_first_tokens_kernel>(stream, tokens, ranks, ids);
  launch<embedding_backward_tokens_kernel<T>>(blocks(tokens, 1), dim3(kThreads), 0, stream, dwte, dout, ids,
                                              static_cast<const std::int32_t*>(ranks), tokens, s.C);
}

}  // namespace stagegpt::gpu
