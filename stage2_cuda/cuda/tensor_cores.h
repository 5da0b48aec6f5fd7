// The instructions of tensor cores and of asynchronous copies (compute capability 8.0), described in
// launch.h. Code for 7.5 copies at once, and has no kernels with TF32 or bf16: CudaFlags refuses these.
#pragma once

#include "common/tensor/dtype.h"
#include "common/tensor/half_floats.h"
#include "stage2_cuda/warp_matrix.h"

namespace stagegpt::gpu {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ inline void mma_m16n8k16(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
      : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]), "r"(b.pair[1]));
}

__device__ inline void mma_m16n8k8(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
      : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]), "r"(b.pair[1]));
}

__device__ inline Bf16Pair rounded_pair(float first, float second) {
  Bf16Pair pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

#else

__device__ inline void mma_m16n8k16(FragmentC&, const FragmentA&, const FragmentB&) { __trap(); }
__device__ inline void mma_m16n8k8(FragmentC&, const FragmentA&, const FragmentB&) { __trap(); }
__device__ inline Bf16Pair rounded_pair(float first, float second) {
  return bf16_of_float(first) | std::uint32_t{bf16_of_float(second)} << 16;
}

#endif

template <class T>
__device__ unsigned shared_address(const T* array, int i) {
  return static_cast<unsigned>(__cvta_generic_to_shared(array)) +
         static_cast<unsigned>(i) * static_cast<unsigned>(sizeof(T));
}

template <class T>
__device__ FragmentA ldmatrix_x4(const T* array, int i) {
  FragmentA f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.pair[0]), "=r"(f.pair[1]), "=r"(f.pair[2]), "=r"(f.pair[3])
               : "r"(shared_address(array, i)));
  return f;
}

__device__ inline FragmentA ldmatrix_x4_trans(const Bf16* array, int i) {
  FragmentA f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.pair[0]), "=r"(f.pair[1]), "=r"(f.pair[2]), "=r"(f.pair[3])
               : "r"(shared_address(array, i)));
  return f;
}

// The largest signed number of both, in one instruction: the NaN of a GPU's arithmetic, 0x7fffffff, must not
// become -0 by a carry. (A NaN above 0xfffff000, which no instruction gives, becomes 0.)
__device__ inline std::uint32_t rounded_tf32(float x) {
  const std::uint32_t bits = __float_as_uint(x), rounded = bits + 0x1000;
  return static_cast<std::int32_t>(rounded) > static_cast<std::int32_t>(bits) ? rounded : bits;
}

template <class T>
__device__ void cp_async_16(T* to, int i, const T* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to, i)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
#else
  *reinterpret_cast<uint4*>(to + i) = valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
#endif
}

__device__ inline void cp_async_wait_all() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

}  // namespace stagegpt::gpu
