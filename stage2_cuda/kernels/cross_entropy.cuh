// Softmax cross-entropy over the first V of Vp columns of each row of logits:
//   lse = log Σ exp(logits),  loss = mean over rows of (lse - logits[target]).
// Backward: dlogits = dloss/N · (exp(logits - lse) - [column = target]), 0 in the padding; it may overwrite
// the logits.
// The columns may be divided into parts, each with its own lse_r, and with picked_r = logits[target], or 0
// where the target is in another part (V or more). Then, in the order of parts:
//   lse = log Σ_r exp(lse_r),  loss = mean over rows of (lse - Σ_r picked_r).
// Accuracy: a row is correct if its target is the argmax, which is the first of equal logits.
//
// One block per row, and 16 bytes per load if rows are aligned. Each thread keeps a maximum and a sum, which
// is rescaled when the maximum grows (online softmax: Milakov and Gimelshein, arXiv:1805.02867). An element
// costs a multiply-add and a power of two each time; only the vector that V divides is tested for padding.
// One block computes the mean, in f64. Correct rows are counted with an atomic integer: order does not
// matter.
//
// Forward and backward together need each logit twice. A row of at most kStagedBytes (50,304 in bf16) is
// copied to shared memory first, all of it at once: it is then read from memory once and written once, and an
// SM with room for two rows loads one while it computes the other. A longer or unaligned row is read twice;
// whether the second time is from the L2 cache depends on the rows under way at a time.
#pragma once

#include "stage2_cuda/kernels/reduce.cuh"

namespace stagegpt::gpu {

struct CrossEntropySize {
  std::int64_t N;
  int V, Vp;
};

inline constexpr int kRowThreads = 512;
// What a block may have on every GPU since compute capability 8.0, and on one of 7.5, less 512 bytes for
// sums.
inline constexpr std::size_t kStagedBytes = (std::size_t{99} << 10) - 512;
inline constexpr std::size_t kStagedBytesOf75 = (std::size_t{64} << 10) - 512;

// The maximum and the sum of one row; row(v) loads elements v, v + 1, …, v + V - 1. Called by the whole
// block.
template <int V, class Row>
__device__ MaxAndSum row_max_and_sum(const Row& row, CrossEntropySize s) {
  MaxAndSum own = {-INFINITY, 0};
  int v = static_cast<int>(threadIdx.x) * V;
  for (; v + V <= s.V; v += kRowThreads * V) own = with(own, row(v));
  if (v < s.V) {
    Floats<V> f = row(v);
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) {
      if (v + i >= s.V) f.v[i] = -INFINITY;
    }
    own = with(own, f);
  }
  return block_merge<kRowThreads>(own);
}

// Whether this thread writes a column of its block's row.
template <int V>
__device__ bool writes(int column) {
  return static_cast<int>(threadIdx.x) == column / V % kRowThreads;
}

// Each thread writes the elements that it has read, so that drow may be the row. The one that writes the
// target's corrects it afterwards; only this thread needs target_logit.
template <int V, class T, class Row>
__device__ void write_row_gradient(T* drow, const Row& row, float lse, std::int32_t target,
                                   float target_logit, float scale, CrossEntropySize s) {
  // Rounding changes all powers by the same factor, by which they are divided.
  const float shift = lse * kLog2E, factor = scale * exp2_approx(fmaf(-lse, kLog2E, shift));
  const auto scaled = [&](float logit) { return factor * exp2_approx(fmaf(logit, kLog2E, -shift)); };
  int v = static_cast<int>(threadIdx.x) * V;
  for (; v + V <= s.V; v += kRowThreads * V) {
    Floats<V> f = row(v);
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f.v[i] = scaled(f.v[i]);
    store<V>(drow, v, f);
  }
  for (; v < s.Vp; v += kRowThreads * V) {
    Floats<V> f = row(v);
    STAGEGPT_UNROLL for (int i = 0; i < V; ++i) f.v[i] = v + i < s.V ? scaled(f.v[i]) : 0;
    store<V>(drow, v, f);
  }
  if (target < s.V && writes<V>(target)) drow[target] = rounded_to<T>(scaled(target_logit) - scale);
}

template <class T, int V>
static __global__ void cross_entropy_rows_kernel(float* lse, const T* logits, CrossEntropySize s) {
  const T* row = logits + std::int64_t{blockIdx.x} * s.Vp;
  const MaxAndSum all = row_max_and_sum<V>([&](int v) { return load<V>(row, v); }, s);
  if (threadIdx.x == 0) lse[blockIdx.x] = all.max + logf(all.sum);
}

// The mean of loss(n) over all rows n. Called by a single block.
template <class Loss>
__device__ void write_mean(float* mean, const Loss& loss, std::int64_t N) {
  double own = 0;
  for (std::int64_t n = threadIdx.x; n < N; n += kRowThreads) own += loss(n);
  const double sum = block_sum<kRowThreads>(own);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(N));
}

template <class T>
static __global__ void mean_loss_kernel(float* loss, const float* lse, const T* logits,
                                        const std::int32_t* targets, CrossEntropySize s) {
  write_mean(
      loss, [&](std::int64_t n) { return lse[n] - as_float(logits[n * s.Vp + targets[n]]); }, s.N);
}

static __global__ void mean_of_rows_kernel(float* loss, const float* rows, std::int64_t N) {
  write_mean(
      loss, [&](std::int64_t n) { return rows[n]; }, N);
}

template <class T, int V>
static __global__ void cross_entropy_backward_kernel(T* dlogits, const float* dloss, const T* logits,
                                                     const float* lse, const std::int32_t* targets,
                                                     CrossEntropySize s) {
  const std::int64_t n = blockIdx.x;
  const T* row = logits + n * s.Vp;
  const std::int32_t target = targets[n];
  const float target_logit = target < s.V && writes<V>(target) ? as_float(row[target]) : 0;
  write_row_gradient<V>(
      dlogits + n * s.Vp, [&](int v) { return load<V>(row, v); }, lse[n], target, target_logit,
      *dloss / static_cast<float>(s.N), s);
}

// rows (N) receives the loss of each row.
template <class T, int V, bool kStaged>
static __global__ void __launch_bounds__(kRowThreads, 2)
    cross_entropy_forward_backward_kernel(T* dlogits, float* rows, const float* dloss, const T* logits,
                                          const std::int32_t* targets, CrossEntropySize s) {
  STAGEGPT_DYNAMIC_SHARED(T, staged);
  const std::int64_t n = blockIdx.x;
  const T* row = logits + n * s.Vp;
  const std::int32_t target = targets[n];
  if constexpr (kStaged) {
    for (int v = static_cast<int>(threadIdx.x) * V; v < s.Vp; v += kRowThreads * V)
      cp_async_16(staged, v, row + v, true);
  }
  const float target_logit = as_float(row[target]);  // before the first barrier: dlogits may be logits
  const float scale = *dloss / static_cast<float>(s.N);
  if constexpr (kStaged) cp_async_wait_all();  // and no barrier: a thread reads only what it has copied
  const auto elements = [&](int v) {
    if constexpr (kStaged) {
      return load_shared<T>(staged, v);
    } else {
      return load<V>(row, v);
    }
  };
  const MaxAndSum all = row_max_and_sum<V>(elements, s);
  const float lse = all.max + logf(all.sum);
  if (threadIdx.x == 0) rows[n] = lse - target_logit;
  write_row_gradient<V>(dlogits + n * s.Vp, elements, lse, target, target_logit, scale, s);
}

template <class T>
void row_lses(StreamHandle stream, float* lse, const T* logits, CrossEntropySize s) {
  const dim3 grid = blocks(s.N, 1), block(kRowThreads);
  if (in_vectors<kVector<T>>(s.Vp, logits)) {
    launch<cross_entropy_rows_kernel<T, kVector<T>>>(grid, block, 0, stream, lse, logits, s);
  } else {
    launch<cross_entropy_rows_kernel<T, 1>>(grid, block, 0, stream, lse, logits, s);
  }
}

template <class T>
void cross_entropy_forward(StreamHandle stream, float* loss, float* lse, const T* logits,
                           const std::int32_t* targets, CrossEntropySize s) {
  row_lses(stream, lse, logits, s);
  launch<mean_loss_kernel<T>>(dim3(1), dim3(kRowThreads), 0, stream, loss, static_cast<const float*>(lse),
                              logits, targets, s);
}

// One thread per row.
template <class T>
static __global__ void pick_targets_kernel(float* picked, const T* logits, const std::int32_t* targets,
                                           CrossEntropySize s, std::int64_t N) {
  const std::int64_t n = thread_index();
  if (n < N) picked[n] = targets[n] < s.V ? as_float(logits[n * s.Vp + targets[n]]) : 0;
}

template <class T>
void cross_entropy_part_forward(StreamHandle stream, float* lse, float* picked, const T* logits,
                                const std::int32_t* targets, CrossEntropySize s) {
  row_lses(stream, lse, logits, s);
  launch_elements<pick_targets_kernel<T>>(stream, s.N, picked, logits, targets, s);
}

// parts (R,2,N): lse and picked of each part. The losses of single rows are left in rows (N). One thread per
// row.
static __global__ void merge_parts_kernel(float* lse, float* rows, const float* parts, int R,
                                          std::int64_t N) {
  const std::int64_t n = thread_index();
  if (n >= N) return;
  float max = parts[n], sum = 0, picked = 0;
  for (int r = 1; r < R; ++r) max = fmaxf(max, parts[2 * r * N + n]);
  for (int r = 0; r < R; ++r) {
    sum += expf(parts[2 * r * N + n] - max);
    picked += parts[(2 * r + 1) * N + n];
  }
  lse[n] = max + logf(sum);
  rows[n] = lse[n] - picked;
}

inline void cross_entropy_of_parts(StreamHandle stream, float* loss, float* lse, float* rows,
                                   const float* parts, int R, std::int64_t N) {
  launch_elements<merge_parts_kernel>(stream, N, lse, rows, parts, R);
  launch<mean_of_rows_kernel>(dim3(1), dim3(kRowThreads), 0, stream, loss, static_cast<const float*>(rows),
                              N);
}

template <class T>
void cross_entropy_backward(StreamHandle stream, T* dlogits, const float* dloss, const T* logits,
                            const float* lse, const std::int32_t* targets, CrossEntropySize s) {
  const dim3 grid = blocks(s.N, 1), block(kRowThreads);
  if (in_vectors<kVector<T>>(s.Vp, dlogits, logits)) {
    launch<cross_entropy_backward_kernel<T, kVector<T>>>(grid, block, 0, stream, dlogits, dloss, logits, lse,
                                                         targets, s);
  } else {
    launch<cross_entropy_backward_kernel<T, 1>>(grid, block, 0, stream, dlogits, dloss, logits, lse, targets,
                                                s);
  }
}

template <class T>
void cross_entropy_forward_backward(StreamHandle stream, float* loss, T* dlogits, float* rows,
                                    const float* dloss, const T* logits, const std::int32_t* targets,
                                    CrossEntropySize s, std::size_t most_staged) {
  constexpr int kV = kVector<T>;
  const dim3 grid = blocks(s.N, 1), block(kRowThreads);
  const std::size_t row_bytes = static_cast<std::size_t>(s.Vp) * sizeof(T);
  if (!in_vectors<kV>(s.Vp, dlogits, logits)) {
    launch<cross_entropy_forward_backward_kernel<T, 1, false>>(grid, block, 0, stream, dlogits, rows, dloss,
                                                               logits, targets, s);
  } else if (row_bytes > most_staged) {
    launch<cross_entropy_forward_backward_kernel<T, kV, false>>(grid, block, 0, stream, dlogits, rows, dloss,
                                                                logits, targets, s);
  } else {
    launch<cross_entropy_forward_backward_kernel<T, kV, true>>(grid, block, row_bytes, stream, dlogits, rows,
                                                               dloss, logits, targets, s);
  }
  launch<mean_of_rows_kernel>(dim3(1), block, 0, stream, loss, static_cast<const float*>(rows), s.N);
}

// Adds the number of correct rows to count.
template <class T>
static __global__ void count_correct_kernel(std::int32_t* count, const T* logits, const std::int32_t* targets,
                                            CrossEntropySize s) {
  const T* row = logits + std::int64_t{blockIdx.x} * s.Vp;
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
