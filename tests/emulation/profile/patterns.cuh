// Kernels whose accesses are known: one line each that matters. Instrumented.
#pragma once

#include "stage2_cuda/hopper.h"

namespace stagegpt::test {

// out[i] = in[stride · i + offset], for one block.
void run_strided(float* out, const float* in, int stride, int offset, unsigned threads);
// Four floats of 16 bytes.
void run_vectors(float* out, const float* in);
void run_broadcast(float* out, const float* in);
// Lane i writes and reads word stride · i of shared memory.
void run_shared_stride(float* out, int stride);
// All lanes read one word of shared memory.
void run_shared_broadcast(float* out);
// Vectors of 16 bytes in shared memory, `stride` floats apart.
void run_shared_vectors(float* out, int stride);
// Only every `one_in`-th lane reads.
void run_divergent(float* out, const float* in, unsigned one_in);
// Lane i reads i times in a loop.
void run_loop(float* out, const float* in);
// Neighbours of two warps exchange elements of `data`, with a barrier in between or without.
enum class Meeting { none, syncthreads, named_barrier };
void run_neighbours(float* data, Meeting meeting);
// Every block writes data[0].
void run_same_place(float* data, unsigned blocks);
// Every block adds 1 to the counter, and the last one reads what the others wrote: with a fence, or without.
void run_last_block(int* counter, float* sums, float* out, unsigned blocks, bool fence);
// Every lane adds 1 to one counter.
void run_atomic(int* counter);
// Each thread reads its neighbour's word of shared memory and writes its own, with no barrier in between.
void run_shared_race(float* out);
// Two warps with a barrier between two parts. In the first, warp 1 has one read more; in the second, odd
// lanes read once more, then each warp adds its values in five shuffles.
void run_phases(float* out, const float* in);
// One warpgroup multiplies the first 64 rows of `rows` (48 columns) by themselves, and adds 64 floats of
// `in`.
void run_warpgroup(float* out, const float* in, const gpu::TensorMap& rows);

}  // namespace stagegpt::test
