// Tiles: parts of matrices in shared memory, which a kernel walks over.
#pragma once

#include "stage2_cuda/kernels/grid.cuh"

namespace stagegpt::gpu {

// A matrix in shared memory. `stride` avoids bank conflicts, and is a multiple of 16 bytes.
template <class Shared>
struct Tile {
  const Shared& memory;
  int begin, stride;

  __device__ int at(int row, int column) const { return begin + row * stride + column; }
};

// Calls use(first, buffer) for the tiles that begin at rows begin, begin + step, … before `end`, each after
// load(first, buffer). With two buffers the next tile is copied while one is used.
template <int kBuffers, class Load, class Use>
__device__ void walk_tiles(int begin, int end, int step, const Load& load, const Use& use) {
  load(begin, 0);
  for (int first = begin, buffer = 0; first < end; first += step) {
    const int next = first + step;
    cp_async_wait_all();
    __syncthreads();  // this tile has arrived, and all have finished with the one before
    if (kBuffers == 2 && next < end) load(next, 1 - buffer);
    use(first, buffer);
    if (kBuffers == 2) {
      buffer = 1 - buffer;
    } else {
      __syncthreads();  // all have finished with this tile
      if (next < end) load(next, 0);
    }
  }
}

}  // namespace stagegpt::gpu
