// Squared norm: Σx², in two passes with a fixed order. First pass: a block adds kNormPart consecutive
// elements; each thread adds its own in f32, V neighbours at a time, then the block adds these sums in f64.
// Second pass: one block adds the sums of the blocks.
//
// Sum of a few numbers: Σx, by one thread, in their order.
#pragma once

#include "stage2_cuda/kernels/reduce.cuh"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

inline constexpr std::int64_t kNormPart = 65536;  // elements per block: 256 per thread

template <int V>
static __global__ void squared_norm_kernel(double* sums, const float* x, std::int64_t n) {
  const std::int64_t begin = blockIdx.x * kNormPart, end = begin + kNormPart < n ? begin + kNormPart : n;
  float own = 0;
  for (std::int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V) {
    const Floats<V> f = load<V>(x, i);
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) own += f.v[j] * f.v[j];
  }
  const double sum = block_sum<kThreads>(static_cast<double>(own));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __global__ void add_sums_kernel(double* out, const double* sums, std::int64_t n) {
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) own += sums[i];
  const double sum = block_sum<kThreads>(own);
  if (threadIdx.x == 0) *out = sum;
}

// The first pass. `sums` has parts(n, kNormPart) elements.
inline void squared_norms(StreamHandle stream, double* sums, const float* x, std::int64_t n) {
  const std::int64_t count = parts(n, kNormPart);
  if (count > 0 && in_vectors<kVector<float>>(n, x)) {
    launch<squared_norm_kernel<kVector<float>>>(blocks(count, 1), dim3(kThreads), 0, stream, sums, x, n);
  } else if (count > 0) {
    launch<squared_norm_kernel<1>>(blocks(count, 1), dim3(kThreads), 0, stream, sums, x, n);
  }
}

// The second pass.
inline void add_sums(StreamHandle stream, double* out, const double* sums, std::int64_t n) {
  launch<add_sums_kernel>(dim3(1), dim3(kThreads), 0, stream, out, sums, n);
}

static __global__ void sum_kernel(double* out, const double* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  *out = sum;
}

inline void sum(StreamHandle stream, double* out, const double* x, std::int64_t n) {
  launch<sum_kernel>(dim3(1), dim3(1), 0, stream, out, x, n);
}

}  // namespace stagegpt::gpu
