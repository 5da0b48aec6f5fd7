// The language in which kernels are written, and their launch. nvcc compiles a kernel file for a GPU; a host
// compiler compiles the same file for the emulator. A kernel file includes this header and uses
//
//   __global__ void kernel(…)                 arguments are pointers to device memory, plain numbers, and
//                                             structs; one pointer inside a struct is recognised, if its
//                                             device_pointer() returns a reference to it
//   threadIdx, blockIdx, blockDim, gridDim
//   __syncthreads(), __syncthreads_or(p)      called by every thread of the block, at the same line
//   __syncwarp(), __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync   called by the mask's lanes
//   atomicAdd(int*, int)                      integers only: a sum of floats would depend on the order
//   __threadfence()                           other blocks see what was written before it first
//   exp2_approx(x)                            2^x within 2 units in the last place; 0 where it would be below
//                                             2^-126
//   rcp_approx(x)                             1/x within a unit in the last place; 0 where it would be below
//                                             2^-126
//   rounded_pair(first, second)               two floats as bf16, rounded to nearest; NaN stays NaN
//   STAGEGPT_SHARED(float, tile, 256);        an array in shared memory
//   STAGEGPT_DYNAMIC_SHARED(float, scores);   an array in shared memory, whose size the launch gives
//   STAGEGPT_UNROLL for (…)                   all iterations one after the other, so that an array that they
//                                             index can be in registers
//   STAGEGPT_NO_UNROLL for (…)                no unrolling, so that fewer registers are needed
//   load4(array, i), store4(array, i, value)  four floats at once, 16-byte aligned; array may be shared
//                                             also four bf16, 8-byte aligned, of device memory
//   load8(array, i), store8(array, i, value)  eight bf16 at once, 16-byte aligned; load8 also from a shared
//                                             array
//   load_once(array, i)                       four floats or eight bf16 of device memory that no thread reads
//                                             again: the multiprocessor's cache does not keep them
//   cp_async_16(array, i, from, valid)        starts a copy of 16 bytes from device memory to a shared array,
//                                             from element i on; if not `valid`, reads nothing and writes
//                                             zeros
//   cp_async_wait_all()                       waits for this thread's copies; a barrier makes them visible to
//                                             the other threads
//
// With tensor cores, called by all 32 lanes of a warp (warp_matrix.h has the types):
//
//   mma_m16n8k16(c, a, b)                     c += a·b
//   mma_m16n8k8(c, a, b)                      the same in TF32: of each float of a and b the lower 13 bits
//                                             are ignored
//   ldmatrix_x4(array, i)                     loads four 8×8 matrices from a shared array of bf16: lane l
//                                             gives the index of row l % 8 of matrix l / 8, which is 16-byte
//                                             aligned. From an array of floats: four matrices of 8×4
//   ldmatrix_x4_trans(array, i)               loads the transposes of matrices of bf16
//   rounded_tf32(x)                           bits whose upper 19 are x rounded to TF32, half away from zero
//                                             (each lane by itself); NaN stays NaN
//
// and
//
//   launch<kernel>(grid, block, shared_bytes, stream, arguments…)
//
// launches it. An invalid launch throws. An error inside the kernel is reported at the next synchronisation,
// or earlier. A __device__ function that takes a shared array has the array's type as a template parameter.
#pragma once

#if defined(__CUDACC__)
#include "stage2_cuda/cuda/launch.h"
#else
#include "stage2_cuda/emulation/launch.h"
#endif
