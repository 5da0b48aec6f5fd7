// out = value, out = a + b, and conversions between f32 and bf16. One thread per element or, for sums and for
// f32 to bf16, per group of V elements: 16 bytes of the result.
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

template <class T, int V>
static __global__ void add_kernel(T* out, const T* a, const T* b, std::int64_t n) {
  const std::int64_t group = thread_index();
  if (group >= n) return;
  Floats<V> sum = load<V>(a, group * V);
  const Floats<V> other = load<V>(b, group * V);
  STAGEGPT_UNROLL for (int i = 0; i < V; ++i) sum.v[i] += other.v[i];
  store<V>(out, group * V, sum);
}

template <class T>
void add(StreamHandle stream, T* out, const T* a, const T* b, std::int64_t n) {
  constexpr int V = kVector<T>;
  if (in_vectors<V>(n, out, a, b)) return launch_elements<add_kernel<T, V>>(stream, n / V, out, a, b);
  launch_elements<add_kernel<T, 1>>(stream, n, out, a, b);
}

template <int V>
static __global__ void to_bf16_kernel(Bf16* out, const float* in, std::int64_t n) {
  if (const std::int64_t group = thread_index(); group < n) store<V>(out, group * V, load<V>(in, group * V));
}

inline void to_bf16(StreamHandle stream, Bf16* out, const float* in, std::int64_t n) {
  constexpr int V = kVector<Bf16>;
  if (in_vectors<V>(n, out, in)) return launch_elements<to_bf16_kernel<V>>(stream, n / V, out, in);
  launch_elements<to_bf16_kernel<1>>(stream, n, out, in);
}

static __global__ void widen_kernel(float* out, const Bf16* in, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = as_float(in[i]);
}

inline void widen(StreamHandle stream, float* out, const Bf16* in, std::int64_t n) {
  launch_elements<widen_kernel>(stream, n, out, in);
}

}  // namespace stagegpt::gpu
