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

#include "stage2_cuda/kernels/real.cuh"
#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

struct CrossEntropySize {
  std::int64_t N, V, Vp;
};

template <class T>
static __global__ void cross_entropy_rows_kernel(float* lse, const T* logits, CrossEntropySize s) {
  const T* row = logits + blockIdx.x * s.Vp;
  MaxAndSum own = {-INFINITY, 0};
  for (std::int64_t v = threadIdx.x; v < s.V; v += kThreads) own = with(own, as_float(row[v]));
  const MaxAndSum all = block_merge<kThreads>(own);
  if (threadIdx.x == 0) lse[blockIdx.x] = all.max + logf(all.sum);
}

template <class T>
static __global__ void mean_loss_kernel(float* loss, const float* lse, const T* logits,
                                        const std::int32_t* targets, CrossEntropySize s) {
  double own = 0;
  for (std::int64_t n = threadIdx.x; n < s.N; n += kThreads)
    own += lse[n] - as_float(logits[n * s.Vp + targets[n]]);
  const double sum = block_sum<kThreads>(own);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / static_cast<double>(s.N));
}

template <class T>
void cross_entropy_forward(StreamHandle stream, float* loss, float* lse, const T* logits,
                           const std::int32_t* targets, CrossEntropySize s) {
  launch<cross_entropy_rows_kernel<T>>(blocks(s.N, 1), dim3(kThreads), 0, stream, lse, logits, s);
  launch<mean_loss_kernel<T>>(dim3(1), dim3(kThreads), 0, stream, loss, static_cast<const float*>(lse),
                              logits, targets, s);
}

template <class T>
static __global__ void cross_entropy_backward_kernel(T* dlogits, const float* dloss, const T* logits,
                                                     const float* lse, const std::int32_t* targets,
                                                     CrossEntropySize s) {
  const std::int64_t n = blockIdx.x, begin = n * s.Vp;
  const float scale = *dloss / static_cast<float>(s.N), row_lse = lse[n];
  const std::int32_t target = targets[n];
  for (std::int64_t v = threadIdx.x; v < s.Vp; v += kThreads) {
    const float p = v < s.V ? expf(as_float(logits[begin + v]) - row_lse) : 0;
    dlogits[begin + v] = rounded_to<T>(v < s.V ? scale * (p - (v == target ? 1.0f : 0.0f)) : 0);
  }
}

template <class T>
void cross_entropy_backward(StreamHandle stream, T* dlogits, const float* dloss, const T* logits,
                            const float* lse, const std::int32_t* targets, CrossEntropySize s) {
  launch<cross_entropy_backward_kernel<T>>(blocks(s.N, 1), dim3(kThreads), 0, stream, dlogits, dloss, logits,
                                           lse, targets, s);
}

// Adds the number of correct rows to count.
template <class T>
static __global__ void count_correct_kernel(std::int32_t* count, const T* logits, const std::int32_t* targets,
                                            CrossEntropySize s) {
  const T* row = logits + blockIdx.x * s.Vp;
  const std::int64_t target = targets[blockIdx.x];
  const float logit = as_float(row[target]);
  int larger = 0;  // whether another logit is larger, or NaN
  for (std::int64_t v = threadIdx.x; v < s.V; v += kThreads) {
    const float other = as_float(row[v]);
    larger |= v < target ? !(other < logit) : !(other <= logit);
  }
  if (!__syncthreads_or(larger) && threadIdx.x == 0) atomicAdd(count, 1);
}

template <class T>
void count_correct(StreamHandle stream, std::int32_t* count, const T* logits, const std::int32_t* targets,
                   CrossEntropySize s) {
  set_zero(count, sizeof *count, stream);
  launch<count_correct_kernel<T>>(blocks(s.N, 1), dim3(kThreads), 0, stream, count, logits, targets, s);
}

}  // namespace stagegpt::gpu
