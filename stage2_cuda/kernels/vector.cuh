// Loads and stores of one float or of four. Kernels that are bound by memory use four if the rows are
// aligned.
#pragma once

#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

template <int V>
struct Floats {
  float v[V];
};

template <int V>
__device__ Floats<V> load(const float* array, std::int64_t i) {
  if constexpr (V == 4) {
    const Float4 f = load4(array, i);
    return {{f.x, f.y, f.z, f.w}};
  } else {
    return {{array[i]}};
  }
}

template <int V>
__device__ void store(float* array, std::int64_t i, const Floats<V>& f) {
  if constexpr (V == 4) {
    store4(array, i, Float4{f.v[0], f.v[1], f.v[2], f.v[3]});
  } else {
    array[i] = f.v[0];
  }
}

// Whether rows of `columns` floats, starting at each of `pointers`, can be read four floats at a time.
template <class... Pointers>
bool in_fours(std::int64_t columns, Pointers... pointers) {
  return columns % 4 == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace stagegpt::gpu
