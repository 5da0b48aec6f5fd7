// out = value: one thread per element. out = a + b, and conversions between f32 and bf16: one thread per
// element, or per V elements if they are aligned.
#pragma once

#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

template <class T>
static __global__ void fill_kernel(T* out, T value, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = value;
}

template <class T>
void fill(StreamHandle stream, T* out, T value, std::int64_t n) {
  launch_elements<fill_kernel<T>>(stream, n, out, value);
}

// One thread for each of n vectors.
template <class T, int V>
static __global__ void add_kernel(T* out, const T* a, const T* b, std::int64_t n) {
  const std::int64_t i = thread_index() * V;
  if (i >= n * V) return;
  Floats<V> sum = load<V>(a, i);
  const Floats<V> other = load<V>(b, i);
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += other.v[j];
  store<V>(out, i, sum);
}

template <class T>
void add(StreamHandle stream, T* out, const T* a, const T* b, std::int64_t n) {
  constexpr int kV = kVector<T>;
  if (in_vectors<kV>(n, out, a, b)) return launch_elements<add_kernel<T, kV>>(stream, n / kV, out, a, b);
  launch_elements<add_kernel<T, 1>>(stream, n, out, a, b);
}

template <class To, class From, int V>
static __global__ void cast_kernel(To* out, const From* in, std::int64_t n) {
  const std::int64_t i = thread_index() * V;
  if (i < n * V) store<V>(out, i, load<V>(in, i));
}

template <class To, class From>
void cast(StreamHandle stream, To* out, const From* in, std::int64_t n) {
  constexpr int kV = kVector<Bf16>;
  if (in_vectors<kV>(n, out, in)) return launch_elements<cast_kernel<To, From, kV>>(stream, n / kV, out, in);
  launch_elements<cast_kernel<To, From, 1>>(stream, n, out, in);
}

}  // namespace stagegpt::gpu
