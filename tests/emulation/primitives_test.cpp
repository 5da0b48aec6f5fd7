// The primitives of kernels, in every thread order.
#include <numeric>

#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

constexpr unsigned kAll = 0xFFFFFFFF;

class EmulatedPrimitives : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedPrimitives, kOrders, order_name);

// Writes the thread and block indices of each thread, as one decimal number.
__global__ void indices(int* out) {
  const unsigned in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + in_block] =
      static_cast<int>(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z +
                       1000 * (blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z));
}

TEST_P(EmulatedPrimitives, threads_and_blocks_have_all_indices) {
  const dim3 grid(3, 2, 4), block(5, 3, 2);
  DeviceArray<int> out(24 * 30);
  launch<indices>(grid, block, 0, nullptr, out.data());
  const std::vector<int> got = out.values();
  for (int i = 0; i < 24 * 30; ++i) {
    const int thread = i % 30, in_grid = i / 30;
    EXPECT_EQ(got[i], thread % 5 + 10 * (thread / 5 % 3) + 100 * (thread / 15) +
                          1000 * (in_grid % 3 + 10 * (in_grid / 3 % 2) + 100 * (in_grid / 6)));
  }
}

// In each round, row `round` of out (rounds, 256) is in (256) in reverse order, plus `round`.
__global__ void reversed(float* out, const float* in, int rounds) {
  STAGEGPT_SHARED(float, part, 256);
  for (int round = 0; round < rounds; ++round) {
    part[threadIdx.x] = in[threadIdx.x] + static_cast<float>(round);
    __syncthreads();
    out[256 * round + threadIdx.x] = part[255 - threadIdx.x];
    __syncthreads();
  }
}

TEST_P(EmulatedPrimitives, barriers_make_a_block_agree) {
  std::vector<float> in(256);
  std::iota(in.begin(), in.end(), 0.0F);
  DeviceArray<float> x(in), out(5 * 256);
  launch<reversed>(1, 256, 0, nullptr, out.data(), x.data(), 5);
  const std::vector<float> got = out.values();
  for (int i = 0; i < 5 * 256; ++i) EXPECT_EQ(got[i], static_cast<float>(255 - i % 256 + i / 256)) << i;
}

__global__ void any(int* out, int which) {
  out[threadIdx.x] = __syncthreads_or(static_cast<int>(threadIdx.x) == which ? 4 : 0);
  out[threadIdx.x] += 10 * __syncthreads_or(0);
}

TEST_P(EmulatedPrimitives, a_barrier_tells_whether_any_thread_said_yes) {
  DeviceArray<int> out(96);
  launch<any>(1, 96, 0, nullptr, out.data(), 77);
  for (const int value : out.values()) EXPECT_EQ(value, 1);
  launch<any>(1, 96, 0, nullptr, out.data(), -1);
  for (const int value : out.values()) EXPECT_EQ(value, 0);
}

template <class T>
__global__ void shuffles(T* out) {
  const unsigned i = threadIdx.x;
  const T value = static_cast<T>(i) + static_cast<T>(100);
  T* mine = out + 6 * i;
  mine[0] = __shfl_sync(kAll, value, 5);
  mine[1] = __shfl_sync(kAll, value, static_cast<int>(i) + 1);  // the next lane, cyclically
  mine[2] = __shfl_xor_sync(kAll, value, 3);
  mine[3] = __shfl_down_sync(kAll, value, 7);
  mine[4] = __shfl_xor_sync(kAll, value, 8, 8);
  mine[5] = __shfl_down_sync(kAll, value, 3, 8);
}

template <class T>
void expect_shuffles() {
  DeviceArray<T> out(6 * 64);
  launch<shuffles<T>>(1, 64, 0, nullptr, out.data());
  const std::vector<T> got = out.values();
  for (int i = 0; i < 64; ++i) {
    const int warp = i / 32 * 32, lane = i % 32;
    const int from[] = {5,
                        (lane + 1) % 32,
                        lane ^ 3,
                        lane + 7 < 32 ? lane + 7 : lane,
                        (lane ^ 8) < lane ? lane ^ 8 : lane,
                        lane % 8 + 3 < 8 ? lane + 3 : lane};
    for (int k = 0; k < 6; ++k) {
      EXPECT_EQ(got[6 * i + k], static_cast<T>(100 + warp + from[k])) << "thread " << i << ", shuffle " << k;
    }
  }
}

TEST_P(EmulatedPrimitives, lanes_get_what_their_source_gives) {
  expect_shuffles<int>();
  expect_shuffles<unsigned>();
  expect_shuffles<float>();
  expect_shuffles<double>();
}

// The two halves of a warp are in different calls at the same time. The lower half makes five times as many
// calls.
__global__ void halves(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16) {
    for (int i = 0; i < 5; ++i) value += __shfl_xor_sync(0xFFFF, value, 1 << i % 4, 16);
  } else {
    value = __shfl_sync(0xFFFF0000, value, 20);
  }
  __syncwarp();
  out[threadIdx.x] = value;
}

TEST_P(EmulatedPrimitives, parts_of_a_warp_do_different_things) {
  DeviceArray<int> out(32);
  launch<halves>(1, 32, 0, nullptr, out.data());
  const std::vector<int> got = out.values();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(got[i], 2 * 120);
  for (int i = 16; i < 32; ++i) EXPECT_EQ(got[i], 20);
}

__global__ void ballots(unsigned* out) {
  out[2 * threadIdx.x] = __ballot_sync(kAll, threadIdx.x % 3 == 0);
  if (threadIdx.x % 2 == 1) out[2 * threadIdx.x + 1] = __ballot_sync(0xAAAAAAAA, threadIdx.x > 16);
}

TEST_P(EmulatedPrimitives, a_ballot_is_the_set_of_those_who_said_yes) {
  DeviceArray<unsigned> out(64);
  launch<ballots>(1, 32, 0, nullptr, out.data());
  const std::vector<unsigned> got = out.values();
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(got[2 * i], 0x49249249U);
  for (unsigned i = 1; i < 32; i += 2) EXPECT_EQ(got[2 * i + 1], 0xAAAA0000U);
}

// Each lane passes a number to the next lane of its warp through shared memory, `rounds` times.
__global__ void ring(int* out, int rounds) {
  STAGEGPT_SHARED(int, slot, 64);
  int value = static_cast<int>(threadIdx.x % 32);
  const unsigned next = threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32;
  for (int i = 0; i < rounds; ++i) {
    slot[next] = value;
    __syncwarp();
    value = slot[threadIdx.x];
    __syncwarp();
  }
  out[threadIdx.x] = value;
}

TEST_P(EmulatedPrimitives, a_warp_shares_memory_with_syncwarp) {
  DeviceArray<int> out(64);
  launch<ring>(1, 64, 0, nullptr, out.data(), 5);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out.values()[i], (i + 27) % 32);
}

// Lanes 0 to 16 synchronise, then lanes 16 to 31. Lane 16 takes part in both barriers, so lane 20 may read
// what lane 0 wrote.
__global__ void half_rings(int* out) {
  STAGEGPT_SHARED(int, slot, 32);
  const unsigned i = threadIdx.x;
  slot[i] = static_cast<int>(i);
  if (i < 17) __syncwarp(0x0001FFFF);
  if (i >= 16) __syncwarp(0xFFFF0000);
  out[i] = i == 20 ? slot[0] : slot[i];
}

TEST_P(EmulatedPrimitives, lanes_hear_of_others_by_way_of_a_third) {
  DeviceArray<int> out(32);
  launch<half_rings>(1, 32, 0, nullptr, out.data());
  EXPECT_EQ(out.values()[20], 0);
}

// Runs long enough for several OS threads to execute blocks at the same time.
__global__ void count(int* sum, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int k = 0; k < 100; ++k) {
    if (i < n) atomicAdd(sum, i % 3);
  }
}

TEST_P(EmulatedPrimitives, atomic_sums_of_all_blocks) {
  DeviceArray<int> sum(1);
  launch<count>(400, 128, 0, nullptr, sum.data(), 50001);
  EXPECT_EQ(sum.values()[0], 5000100);
}

// Reverses the order of n groups of four floats, through dynamic shared memory.
__global__ void reverse_fours(float* out, const float* in, int n) {
  STAGEGPT_DYNAMIC_SHARED(float, buffer);
  const int i = static_cast<int>(threadIdx.x);
  store4(buffer, 4 * i, load4(in, 4 * i));
  __syncthreads();
  Float4 value = load4(buffer, 4 * (n - 1 - i));
  value.x += 1;
  store4(out, 4 * i, value);
}

TEST_P(EmulatedPrimitives, four_floats_at_once) {
  std::vector<float> in(4 * 40);
  std::iota(in.begin(), in.end(), 0.0F);
  DeviceArray<float> x(in), out(in.size());
  launch<reverse_fours>(1, 40, in.size() * sizeof(float), nullptr, out.data(), x.data(), 40);
  for (int i = 0; i < 160; ++i) {
    EXPECT_EQ(out.values()[i], static_cast<float>(4 * (39 - i / 4) + i % 4 + (i % 4 == 0 ? 1 : 0)));
  }
}

template <class Shared>
__device__ float first_two(const Shared& array) {
  return array[0] * array[1] + fmaxf(array[0], array[1]);
}

__global__ void operators(float* out) {
  STAGEGPT_SHARED(float, x, 2);
  STAGEGPT_SHARED(int, n, 1);
  x[0] = x[1] = 3;
  x[0] += 4;
  x[0] -= 1;
  x[0] *= 2;
  x[0] /= 4;
  n[0] = 6;
  ++n[0];
  n[0] |= 8;
  n[0] &= 12;
  out[0] = x[0];
  out[1] = first_two(x);
  out[2] = static_cast<float>(n[0]);
  x[1] = x[0];
  out[3] = -x[1] + 1 + rsqrtf(4);
}

TEST_P(EmulatedPrimitives, shared_elements_read_and_are_assigned_to_like_numbers) {
  DeviceArray<float> out(4);
  launch<operators>(1, 1, 0, nullptr, out.data());
  EXPECT_EQ(out.values(), (std::vector<float>{3, 12, 12, -1.5F}));
}

}  // namespace
}  // namespace stagegpt::test
