// Dropout: out[i] = x[i] / (1-p) if u[i] >= p, else 0, where u[i] is number first_element + i of a Philox
// sequence. The backward applies the same factors to gradients. One thread per element; the mask is not
// stored but computed again.
#pragma once

#include "common/backend/op_types.h"
#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

// The parameters of a Dropout, as a kernel argument.
struct DropoutMap {
  explicit DropoutMap(const Dropout& dropout)
      : key(dropout.key),
        first_element(dropout.first_element),
        p(static_cast<float>(dropout.p)),
        kept(static_cast<float>(1 / (1 - dropout.p))) {}

  RandomKey key;
  std::int64_t first_element;
  float p, kept;
};

// The factor of element i: 0 or 1/(1-p).
__device__ inline float dropout_factor(const DropoutMap& map, std::int64_t i) {
  if (map.p == 0) return 1;
  return random_uniform(map.key, static_cast<std::uint64_t>(map.first_element + i)) >= map.p ? map.kept : 0;
}

template <class T>
static __global__ void dropout_kernel(T* out, bool accumulate, const T* x, DropoutMap map, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n)
    put(out, i, as_float(x[i]) * dropout_factor(map, i), accumulate);
}

template <class T>
void dropout(StreamHandle stream, T* out, bool accumulate, const T* x, const Dropout& dropout,
             std::int64_t n) {
  launch_elements<dropout_kernel<T>>(stream, n, out, accumulate, x, DropoutMap(dropout));
}

}  // namespace stagegpt::gpu
