// Loads and stores of V neighbouring elements, as floats. Kernels that are bound by memory use 16 bytes at a
// time if the rows are aligned: V = kVector<T>.
#pragma once

#include "stage2_cuda/kernels/real.cuh"

namespace stagegpt::gpu {

// Elements in 16 bytes.
template <class T>
inline constexpr int kVector = 16 / sizeof(T);

template <int V>
struct Floats {
  float v[V];
};

__device__ inline Floats<4> floats_of(const Float4& four) { return {{four.x, four.y, four.z, four.w}}; }

// A bf16 is the upper half of a float whose lower half is zero.
__device__ inline float first_of(Bf16Pair pair) { return std::bit_cast<float>(pair << 16); }
__device__ inline float second_of(Bf16Pair pair) { return std::bit_cast<float>(pair & 0xffff0000); }

__device__ inline Floats<4> floats_of(const Bf16x4& four) {
  return {{first_of(four.pair[0]), second_of(four.pair[0]), first_of(four.pair[1]), second_of(four.pair[1])}};
}
__device__ inline Floats<8> floats_of(const Bf16x8& eight) {
  Floats<8> f;
  STAGEGPT_UNROLL for (int j = 0; j < 4; ++j) {
    f.v[2 * j] = first_of(eight.pair[j]);
    f.v[2 * j + 1] = second_of(eight.pair[j]);
  }
  return f;
}

// The elements' sum, or another reduction, in pairs: fewer steps wait for each other than in a row.
template <int V, class Reduce>
__device__ float in_pairs(Floats<V> f, const Reduce& reduce) {
  STAGEGPT_UNROLL for (int n = V / 2; n > 0; n /= 2) {
    STAGEGPT_UNROLL for (int i = 0; i < n; ++i) f.v[i] = reduce(f.v[i], f.v[i + n]);
  }
  return f.v[0];
}

// The array may be shared.
template <int V, class Array>
__device__ Floats<V> load_floats(const Array& array, std::int64_t i) {
  Floats<V> f;
  if constexpr (V == 1) {
    f.v[0] = array[i];
  } else {
    STAGEGPT_UNROLL for (int j = 0; j < V; j += 4) {
      const Float4 four = load4(array, i + j);
      f.v[j] = four.x, f.v[j + 1] = four.y, f.v[j + 2] = four.z, f.v[j + 3] = four.w;
    }
  }
  return f;
}

template <int V>
__device__ Floats<V> load(const float* array, std::int64_t i) {
  return load_floats<V>(array, i);
}

template <int V>
__device__ Floats<V> load(const Bf16* array, std::int64_t i) {
  static_assert(V == 1 || V == 4 || V == 8);
  Floats<V> f;
  if constexpr (V == 1) {
    f.v[0] = as_float(array[i]);
  } else if constexpr (V == 4) {
    f = floats_of(load4(array, i));
  } else {
    f = floats_of(load8(array, i));
  }
  return f;
}

// 16 bytes of an array of T in shared memory.
template <class T, class Shared>
__device__ Floats<kVector<T>> load_shared(const Shared& array, std::int64_t i) {
  if constexpr (std::is_same_v<T, float>) {
    return floats_of(load4(array, i));
  } else {
    return floats_of(load8(array, i));
  }
}

// The array may be shared. 16 bytes per lane have no bank conflicts if V = 4; 4 bytes at a stride of 4 would
// have 4-way conflicts.
template <int V, class Array>
__device__ void store_floats(Array&& array, std::int64_t i, const Floats<V>& f) {
  if constexpr (V == 1) {
    array[i] = f.v[0];
  } else {
    STAGEGPT_UNROLL for (int j = 0; j < V; j += 4)
        store4(array, i + j, Float4{f.v[j], f.v[j + 1], f.v[j + 2], f.v[j + 3]});
  }
}

template <int V>
__device__ void store(float* array, std::int64_t i, const Floats<V>& f) {
  store_floats(array, i, f);
}

template <int V>
__device__ void store(Bf16* array, std::int64_t i, const Floats<V>& f) {
  static_assert(V == 1 || V == 4 || V == 8);
  if constexpr (V == 1) {
    array[i] = rounded_to<Bf16>(f.v[0]);
  } else {
    std::conditional_t<V == 4, Bf16x4, Bf16x8> rounded;
    STAGEGPT_UNROLL for (int j = 0; j < V; j += 2) rounded.pair[j / 2] = rounded_pair(f.v[j], f.v[j + 1]);
    if constexpr (V == 4) {
      store4(array, i, rounded);
    } else {
      store8(array, i, rounded);
    }
  }
}

// Whether rows of `columns` elements, starting at each of `pointers`, can be read V elements at a time.
template <int V, class... Pointers>
bool in_vectors(std::int64_t columns, Pointers... pointers) {
  return columns % V == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace stagegpt::gpu
