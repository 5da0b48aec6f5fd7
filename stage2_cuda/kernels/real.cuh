// Element types of activations: float, or bf16, with which kernels compute in f32 and round what they write.
#pragma once

#include <type_traits>

#include "common/tensor/half_floats.h"
#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

// `value` as T, rounded to nearest.
template <class T>
__device__ T rounded_to(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return Bf16{static_cast<std::uint16_t>(rounded_pair(value, 0))};
  }
}

// Overwrites or accumulates one element of a gradient.
template <class T>
__device__ void put(T* out, std::int64_t i, float value, bool accumulate) {
  out[i] = rounded_to<T>(accumulate ? as_float(out[i]) + value : value);
}

// Bits of which tensor cores use the upper 19: x rounded to TF32, half away from zero. The largest signed
// number of both, so that the NaN of a GPU's arithmetic, 0x7fffffff, does not become -0 by a carry.
__device__ inline std::uint32_t rounded_tf32(float x) {
  const std::uint32_t bits = __float_as_uint(x), rounded = bits + 0x1000;
  return static_cast<std::int32_t>(rounded) > static_cast<std::int32_t>(bits) ? rounded : bits;
}

}  // namespace stagegpt::gpu
