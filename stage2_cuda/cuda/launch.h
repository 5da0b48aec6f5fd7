// launch.h for nvcc.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "common/tensor/dtype.h"
#include "stage2_cuda/cuda/check.h"
#include "stage2_cuda/cuda/tensor_cores.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/runtime.h"

// Alignment to 16 bytes allows load4.
#define STAGEGPT_SHARED(type, name, count) __shared__ __align__(16) type name[count]

// All kernels of a translation unit share one symbol, so that it needs one type.
#define STAGEGPT_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char stagegpt_dynamic_shared[]; \
  type* name = reinterpret_cast<type*>(stagegpt_dynamic_shared)

#define STAGEGPT_UNROLL _Pragma("unroll")
#define STAGEGPT_NO_UNROLL _Pragma("unroll 1")

namespace stagegpt::gpu {

__device__ inline float exp2_approx(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ inline float rcp_approx(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

using Float4 = float4;

__device__ inline Float4 load4(const float* array, std::int64_t i) {
  return *reinterpret_cast<const float4*>(array + i);
}
__device__ inline void store4(float* array, std::int64_t i, Float4 value) {
  *reinterpret_cast<float4*>(array + i) = value;
}

__device__ inline Float4 load_once(const float* array, std::int64_t i) {
  float4 four;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "l"(array + i)
               : "memory");
  return four;
}

struct alignas(8) Bf16x4 {
  Bf16Pair pair[2];
};

__device__ inline Bf16x4 load4(const Bf16* array, std::int64_t i) {
  const uint2 four = *reinterpret_cast<const uint2*>(array + i);
  return {{four.x, four.y}};
}
__device__ inline void store4(Bf16* array, std::int64_t i, const Bf16x4& value) {
  *reinterpret_cast<uint2*>(array + i) = {value.pair[0], value.pair[1]};
}

struct alignas(16) Bf16x8 {
  Bf16Pair pair[4];
};

__device__ inline Bf16x8 load8(const Bf16* array, std::int64_t i) {
  const uint4 bits = *reinterpret_cast<const uint4*>(array + i);
  return {{bits.x, bits.y, bits.z, bits.w}};
}
__device__ inline void store8(Bf16* array, std::int64_t i, const Bf16x8& value) {
  *reinterpret_cast<uint4*>(array + i) = {value.pair[0], value.pair[1], value.pair[2], value.pair[3]};
}

__device__ inline Bf16x8 load_once(const Bf16* array, std::int64_t i) {
  Bf16x8 eight;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(eight.pair[0]), "=r"(eight.pair[1]), "=r"(eight.pair[2]), "=r"(eight.pair[3])
               : "l"(array + i)
               : "memory");
  return eight;
}

// What a block may have without asking for more: its static and its dynamic shared memory together.
inline constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10;

template <auto kernel>
std::size_t static_shared_bytes() {
  static const std::size_t bytes = [] {
    cudaFuncAttributes attributes;
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), "querying a kernel's attributes");
    return attributes.sharedSizeBytes;
  }();
  return bytes;
}

template <auto kernel, class... Args>
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, StreamHandle stream, Args... args) {
  if (shared_bytes > 0 && shared_bytes + static_shared_bytes<kernel>() > kDefaultSharedBytes) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "asking for shared memory");
  }
  ++device_counts.kernels;
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(args...);
  check_cuda(cudaGetLastError(), "launching a kernel");
}

}  // namespace stagegpt::gpu
