// How kernels are written, and how they are started. One source serves nvcc and a host compiler: the first
// makes a GPU's kernels of it, the second runs them on the emulator. A kernel file includes this and uses
//
//   __global__ void kernel(…)                 arguments are pointers to device memory and plain numbers; a
//                                             pointer inside a struct is not recognised
//   threadIdx, blockIdx, blockDim, gridDim
//   __syncthreads(), __syncthreads_or(p)      every thread of the block, at the same line
//   __syncwarp(), __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync     the lanes of the mask
//   atomicAdd(int*, int)                      sums of integers only: those of floats have no order
//   STAGEGPT_SHARED(float, tile, 256);        an array that the threads of a block share
//   STAGEGPT_DYNAMIC_SHARED(float, scores);   another, of the size that the launch gives
//   load4(array, i), store4(array, i, value)  four floats at once, 16-byte aligned; array may be shared
//
// and
//
//   launch<kernel>(grid, block, shared_bytes, stream, arguments…)
//
// starts it: a bad launch throws, an error inside the kernel comes to light at the next synchronisation at
// the latest. A shared array that is handed to a __device__ function is a template parameter there.
#pragma once

#if defined(__CUDACC__)
#include "stage2_cuda/cuda/launch.h"
#else
#include "stage2_cuda/emulation/launch.h"
#endif
