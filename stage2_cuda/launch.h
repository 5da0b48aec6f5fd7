// The language in which kernels are written, and their launch. nvcc compiles a kernel file for a GPU; a host
// compiler compiles the same file for the emulator. A kernel file includes this header and uses
//
//   __global__ void kernel(…)                 arguments are pointers to device memory and plain numbers; a
//                                             pointer inside a struct is not recognised
//   threadIdx, blockIdx, blockDim, gridDim
//   __syncthreads(), __syncthreads_or(p)      called by every thread of the block, at the same line
//   __syncwarp(), __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync   called by the mask's lanes
//   atomicAdd(int*, int)                      integers only: a sum of floats would depend on the order
//   STAGEGPT_SHARED(float, tile, 256);        an array in shared memory
//   STAGEGPT_DYNAMIC_SHARED(float, scores);   an array in shared memory, whose size the launch gives
//   STAGEGPT_UNROLL for (…)                   all iterations one after the other, so that an array that they
//                                             index can be in registers
//   load4(array, i), store4(array, i, value)  four floats at once, 16-byte aligned; array may be shared
//   load8(array, i), store8(array, i, value)  eight bf16 at once, 16-byte aligned
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
