// out = value, out = a + b, and conversions between f32 and bf16: one thread per element.
#pragma once

#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

template <class T>
static __global__ void fill_kernel(T* out, T value, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = value;
}

template <class T>
void fill(StreamHandle stream, T* out, T value, std::int64_t n) {
  launch_elements<fill_kernel<T>>(stream, n, out, value);
}

template <class T>
static __global__ void add_kernel(T* out, const T* a, const T* b, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = rounded_to<T>(as_float(a[i]) + as_float(b[i]));
}

template <class T>
void add(StreamHandle stream, T* out, const T* a, const T* b, std::int64_t n) {
  launch_elements<add_kernel<T>>(stream, n, out, a, b);
}

static __global__ void to_bf16_kernel(Bf16* out, const float* in, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = rounded_to<Bf16>(in[i]);
}

inline void to_bf16(StreamHandle stream, Bf16* out, const float* in, std::int64_t n) {
  launch_elements<to_bf16_kernel>(stream, n, out, in);
}

static __global__ void widen_kernel(float* out, const Bf16* in, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) out[i] = as_float(in[i]);
}

inline void widen(StreamHandle stream, float* out, const Bf16* in, std::int64_t n) {
  launch_elements<widen_kernel>(stream, n, out, in);
}

}  // namespace stagegpt::gpu
