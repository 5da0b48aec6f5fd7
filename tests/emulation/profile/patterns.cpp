#include "tests/emulation/profile/patterns.cuh"

namespace stagegpt::test {
namespace {

using namespace gpu;

__global__ void strided(float* out, const float* in, int stride, int offset) {
  out[threadIdx.x] = in[static_cast<int>(threadIdx.x) * stride + offset];
}

__global__ void vectors(float* out, const float* in) {
  store4(out, 4 * threadIdx.x, load4(in, 4 * threadIdx.x));
}

__global__ void broadcast(float* out, const float* in) { out[threadIdx.x] = in[0]; }

__global__ void shared_stride(float* out, int stride) {
  STAGEGPT_SHARED(float, words, 32 * 32);
  const int i = static_cast<int>(threadIdx.x) * stride;
  words[i] = 1;
  out[threadIdx.x] = words[i];
}

__global__ void shared_broadcast(float* out) {
  STAGEGPT_SHARED(float, word, 1);
  if (threadIdx.x == 0) word[0] = 1;
  __syncthreads();
  out[threadIdx.x] = word[0];
}

__global__ void shared_vectors(float* out, int stride) {
  STAGEGPT_SHARED(float, words, 32 * 32);
  const int i = static_cast<int>(threadIdx.x) * stride;
  store4(words, i, Float4{1, 2, 3, 4});
  store4(out, 4 * threadIdx.x, load4(words, i));
}

__global__ void divergent(float* out, const float* in, unsigned one_in) {
  if (threadIdx.x % one_in == 0) out[threadIdx.x] = in[threadIdx.x];
}

__global__ void loop(float* out, const float* in) {
  float sum = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) sum += in[i];
  out[threadIdx.x] = sum;
}

__global__ void neighbours(float* data, Meeting meeting) {
  const unsigned next = (threadIdx.x + 1) % blockDim.x;
  data[threadIdx.x] = 1;
  if (meeting == Meeting::syncthreads) __syncthreads();
  if (meeting == Meeting::named_barrier) named_barrier(1, 64);
  const float value = data[next];
  if (value < 0) data[threadIdx.x] = value;  // never; it keeps the read
}

__global__ void same_place(float* data) { data[0] = 1; }

__global__ void last_block(int* counter, float* sums, float* out, bool fence) {
  STAGEGPT_SHARED(int, earlier, 1);
  sums[blockIdx.x] = 1;
  if (fence) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) earlier[0] = atomicAdd(counter, 1);
  __syncthreads();
  if (earlier[0] + 1 < static_cast<int>(gridDim.x)) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += sums[i];
  *out = sum;
  *counter = 0;
}

__global__ void atomic(int* counter) { atomicAdd(counter, 1); }

__global__ void shared_race(float* out) {
  STAGEGPT_SHARED(float, words, 32);
  words[threadIdx.x] = 1;
  __syncthreads();
  const float value = words[(threadIdx.x + 1) % 32];
  words[threadIdx.x] = 2;
  out[threadIdx.x] = value;
}

__global__ void phases(float* out, const float* in) {
  STAGEGPT_SHARED(float, words, 64);
  const unsigned i = threadIdx.x;
  float value = in[i];
  if (i >= 32) value += in[i - 32];
  words[i] = value;
  __syncthreads();
  value = words[63 - i];
  if (i % 2 == 1) value += words[i];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, step);
  out[i] = value;
}

struct WarpgroupMemory {
  SharedTile tile;
  SharedFloats<64> floats;
  Barrier full;
};

__global__ void warpgroup(float* out, const float* in, const __grid_constant__ TensorMap rows) {
  STAGEGPT_SHARED_STRUCT(WarpgroupMemory, memory);
  if (threadIdx.x == 0) {
    memory.full.init(1);
    fence_barrier_init();
    memory.full.arrive_and_expect(kTileBytes + 256);
    tma_load(memory.tile, rows, 0, 0, 0, 0, memory.full);
    bulk_load(memory.floats, in, memory.full);
  }
  __syncthreads();
  memory.full.wait(0);
  Accumulator sums;
  wgmma_fence(sums);
  for (int k = 0; k < 4; ++k) wgmma(sums, memory.tile.columns(k), memory.tile.columns(k), k > 0);
  wgmma_commit();
  wgmma_wait<0>(sums);
  out[threadIdx.x] = sums[0] + memory.floats[static_cast<int>(threadIdx.x % 64)];
}

}  // namespace

void run_strided(float* out, const float* in, int stride, int offset, unsigned threads) {
  launch<strided>(1, threads, 0, nullptr, out, in, stride, offset);
}
void run_vectors(float* out, const float* in) { launch<vectors>(1, 32, 0, nullptr, out, in); }
void run_broadcast(float* out, const float* in) { launch<broadcast>(1, 32, 0, nullptr, out, in); }
void run_shared_stride(float* out, int stride) { launch<shared_stride>(1, 32, 0, nullptr, out, stride); }
void run_shared_broadcast(float* out) { launch<shared_broadcast>(1, 32, 0, nullptr, out); }
void run_shared_vectors(float* out, int stride) { launch<shared_vectors>(1, 32, 0, nullptr, out, stride); }
void run_divergent(float* out, const float* in, unsigned one_in) {
  launch<divergent>(1, 32, 0, nullptr, out, in, one_in);
}
void run_loop(float* out, const float* in) { launch<loop>(1, 32, 0, nullptr, out, in); }
void run_neighbours(float* data, Meeting meeting) { launch<neighbours>(1, 64, 0, nullptr, data, meeting); }
void run_same_place(float* data, unsigned blocks) { launch<same_place>(blocks, 1, 0, nullptr, data); }
void run_last_block(int* counter, float* sums, float* out, unsigned blocks, bool fence) {
  launch<last_block>(blocks, 1, 0, nullptr, counter, sums, out, fence);
}
void run_atomic(int* counter) { launch<atomic>(1, 32, 0, nullptr, counter); }
void run_shared_race(float* out) { launch<shared_race>(1, 32, 0, nullptr, out); }
void run_phases(float* out, const float* in) { launch<phases>(1, 64, 0, nullptr, out, in); }
void run_warpgroup(float* out, const float* in, const TensorMap& rows) {
  launch<warpgroup>(1, 128, shared_bytes_of<WarpgroupMemory>(), nullptr, out, in, rows);
}

}  // namespace stagegpt::test
