// Softmax cross-entropy over the first V of Vp columns of each row of logits:
//   lse = log Σ exp(logits),  loss = mean over rows of (lse - logits[target]).
// Backward: dlogits = dloss/N · (exp(logits - lse) - [column = target]), 0 in the padding; it may overwrite
// the logits.
// Accuracy: a row is correct if its target is the argmax, which is the first of equal logits.
//
// One block per row. The forward reads a row once: each thread keeps a maximum and a sum, which is rescaled
// when the maximum grows (online softmax: Milakov and Gimelshein, arXiv:1805.02867). One block computes the
// mean, in f64. Correct rows are counted with an atomic integer: order does not matter.
#pragma once

#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

struct CrossEntropySize {
  std::int64_t N, V, Vp;
};

static __global__ void cross_entropy_rows_kernel(float* lse, const float* logits, CrossEntropySize s) {
  const float* row = logits + blockIdx.x * s.Vp;
  MaxAndSum own = {-INFINITY, 0};
  for (std::int64_t v = threadIdx.x; v < s.V; v += kThreads) own = with(own, row[v]);
  const MaxAndSum all = block_merge<kThreads>(own);
  if (threadIdx.x == 0) lse[blockIdx.x] = all.max + logf(all.sum);
}

static __global__ void mean_loss_kernel(float* loss, const float* lse, const float* logits,
                                        const std::int32_t* targets, CrossEntropySize s) {
  double own = 0;
  for (std::int64_t n = threadIdx.x; n < s.N; n += kThreads) own += lse[n] - logits[n * s.Vp + targets[n]];
  const double sum = block_sum<kThreads>(own);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(s.N));
}

inline void cross_entropy_forward(StreamHandle stream, float* loss, float* lse, const float* logits,
                                  const std::int32_t* targets, CrossEntropySize s) {
  launch<cross_entropy_rows_kernel>(blocks(s.N, 1), dim3(kThreads), 0, stream, lse, logits, s);
  launch<mean_loss_kernel>(dim3(1), dim3(kThreads), 0, stream, loss, static_cast<const float*>(lse), logits,
                           targets, s);
}

static __global__ void cross_entropy_backward_kernel(float* dlogits, const float* dloss, const float* logits,
                                                     const float* lse, const std::int32_t* targets,
                                                     CrossEntropySize s) {
  const std::int64_t n = blockIdx.x, begin = n * s.Vp;
  const float scale = *dloss / static_cast<float>(s.N), row_lse = lse[n];
  const std::int32_t target = targets[n];
  for (std::int64_t v = threadIdx.x; v < s.Vp; v += kThreads) {
    const float p = v < s.V ? expf(logits[begin + v] - row_lse) : 0;
    dlogits[begin + v] = v < s.V ? scale * (p - (v == target ? 1.0f : 0.0f)) : 0;
  }
}

inline void cross_entropy_backward(StreamHandle stream, float* dlogits, const float* dloss,
                                   const float* logits, const float* lse, const std::int32_t* targets,
                                   CrossEntropySize s) {
  launch<cross_entropy_backward_kernel>(blocks(s.N, 1), dim3(kThreads), 0, stream, dlogits, dloss, logits,
                                        lse, targets, s);
}

// Adds the number of correct rows to count.
static __global__ void count_correct_kernel(std::int32_t* count, const float* logits,
                                            const std::int32_t* targets, CrossEntropySize s) {
  const float* row = logits + blockIdx.x * s.Vp;
  const std::int64_t target = targets[blockIdx.x];
  const float logit = row[target];
  int larger = 0;  // whether another logit is larger, or NaN
  for (std::int64_t v = threadIdx.x; v < s.V; v += kThreads) {
    larger |= v < target ? !(row[v] < logit) : !(row[v] <= logit);
  }
  if (!__syncthreads_or(larger) && threadIdx.x == 0) atomicAdd(count, 1);
}

inline void count_correct(StreamHandle stream, std::int32_t* count, const float* logits,
                          const std::int32_t* targets, CrossEntropySize s) {
  set_zero(count, sizeof *count, stream);
  launch<count_correct_kernel>(blocks(s.N, 1), dim3(kThreads), 0, stream, count, logits, targets, s);
}

}  // namespace stagegpt::gpu
