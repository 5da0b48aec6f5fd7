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

}  // namespace stagegpt::gpu
