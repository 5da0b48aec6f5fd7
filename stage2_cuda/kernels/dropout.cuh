// Dropout: out[i] = x[i] / (1-p) if u[i] >= p, else 0, where u[i] is number element(i) of a Philox sequence:
// first_element + i, unless the tensor is a part of a larger one (op_types.h). The backward applies the same
// factors to gradients. The mask is not stored but computed again. One thread per element; or per V elements,
// 16 bytes, if they are aligned and begin at a block of four random numbers: each block is then computed
// once, and not for each of its numbers.
#pragma once

#include "common/backend/op_types.h"
#include "stage2_cuda/kernels/vector.cuh"

namespace stagegpt::gpu {

// The parameters of a Dropout.
struct DropoutMap {
  RandomKey key;
  std::int64_t first_element, run, stride;
  float p, kept;

  __device__ std::uint64_t element(std::int64_t i) const {
    return static_cast<std::uint64_t>(first_element + (run == 0 ? i : i / run * stride + i % run));
  }
};

// Dropout as a kernel argument: a position in device memory is not read yet.
class DropoutArgument {
 public:
  explicit DropoutArgument(const Dropout& dropout)
      : map_{dropout.key,    dropout.first_element,         dropout.run,
             dropout.stride, static_cast<float>(dropout.p), static_cast<float>(1 / (1 - dropout.p))},
        position_(dropout.position.defined() ? dropout.position.data<std::int32_t>() : nullptr),
        sequence_elements_(dropout.sequence_elements) {}

  __device__ DropoutMap map() const {
    DropoutMap map = map_;
    if (position_ != nullptr && map.p > 0) {
      map.key.step = static_cast<std::uint32_t>(position_[0]);
      map.first_element += position_[1] * sequence_elements_;
    }
    return map;
  }
  __device__ float kept() const { return map_.kept; }
  // Whether the first element, and that of each run, begins a block of four random numbers, at every
  // position.
  bool in_blocks() const {
    return map_.first_element % 4 == 0 && sequence_elements_ % 4 == 0 && map_.run % 4 == 0 &&
           map_.stride % 4 == 0;
  }
  const std::int32_t*& device_pointer() { return position_; }

 private:
  DropoutMap map_;
  const std::int32_t* position_;  // a PassPosition, or null
  std::int64_t sequence_elements_;
};

// The factor of element i: 0 or 1/(1-p).
__device__ inline float dropout_factor(const DropoutMap& map, std::int64_t i) {
  if (map.p == 0) return 1;
  return random_uniform(map.key, map.element(i)) >= map.p ? map.kept : 0;
}

// The factors of elements i, i + 1, …; if V > 1, element(i) is a multiple of four.
template <int V>
__device__ Floats<V> dropout_factors(const DropoutMap& map, std::int64_t i) {
  Floats<V> f;
  if constexpr (V == 1) {
    f.v[0] = dropout_factor(map, i);
  } else if (map.p == 0) {
    STAGEGPT_UNROLL for (int j = 0; j < V; ++j) f.v[j] = 1;
  } else {
    const std::uint64_t block = map.element(i) / 4;
    STAGEGPT_UNROLL for (int j = 0; j < V; j += 4) {
      const auto words = philox(map.key, block + static_cast<std::uint64_t>(j / 4));
      STAGEGPT_UNROLL for (int k = 0; k < 4; ++k) f.v[j + k] = uniform_of(words[k]) >= map.p ? map.kept : 0;
    }
  }
  return f;
}

// One thread for each of n vectors.
template <class T, int V>
static __global__ void dropout_kernel(T* out, bool accumulate, const T* x, DropoutArgument dropout,
                                      std::int64_t n) {
  const std::int64_t i = thread_index() * V;
  if (i >= n * V) return;
  const Floats<V> value = load<V>(x, i), factor = dropout_factors<V>(dropout.map(), i);
  Floats<V> sum = {};
  if (accumulate) sum = load<V>(out, i);
  STAGEGPT_UNROLL for (int j = 0; j < V; ++j) sum.v[j] += value.v[j] * factor.v[j];
  store<V>(out, i, sum);
}

template <class T>
void dropout(StreamHandle stream, T* out, bool accumulate, const T* x, const Dropout& dropout,
             std::int64_t n) {
  constexpr int kV = kVector<T>;
  const DropoutArgument argument(dropout);
  if (in_vectors<kV>(n, out, x) && argument.in_blocks())
    return launch_elements<dropout_kernel<T, kV>>(stream, n / kV, out, accumulate, x, argument);
  launch_elements<dropout_kernel<T, 1>>(stream, n, out, accumulate, x, argument);
}

}  // namespace stagegpt::gpu
