// Deadlocks between threads. Each error names the kernel, the block, the waiting threads, and the lines.
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

constexpr unsigned kAll = 0xFFFFFFFF;

class EmulatedDivergence : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedDivergence, kOrders, order_name);

// Whether this is block (1,2,0): only in this block, the test kernels make errors.
__device__ bool here() { return blockIdx.x == 1 && blockIdx.y == 2; }
const dim3 kGrid(2, 3);
constexpr const char* kBlock = "block (1,2,0)";

std::string line(unsigned number) { return concat("divergence_test.cpp:", number); }

constexpr unsigned kTwoBarriers = __LINE__ + 3;
__global__ void two_barriers() {
  if (here() && threadIdx.x == 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_P(EmulatedDivergence, barriers_at_different_lines) {
  expect_error({"kernel two_barriers", kBlock, "(40,0,0)", "__syncthreads", line(kTwoBarriers),
                line(kTwoBarriers + 2)},
               [] { launch<two_barriers>(kGrid, 64, 0, nullptr); });
}

constexpr unsigned kEarlyExit = __LINE__ + 3;
__global__ void early_exit() {
  if (here() && threadIdx.y == 1 && (threadIdx.x == 3 || threadIdx.x == 5)) return;
  __syncthreads();
}

TEST_P(EmulatedDivergence, a_barrier_that_two_threads_do_not_reach) {
  expect_error({"kernel early_exit, block (1,2,0), thread (3,1,0): has exited, but thread (",
                concat(" waits in __syncthreads in ", line(kEarlyExit), " for all threads of the block")},
               [] { launch<early_exit>(kGrid, dim3(8, 4), 0, nullptr); });
}

constexpr unsigned kLaneExits = __LINE__ + 3;
__global__ void lane_exits(int* out) {
  if (here() && threadIdx.x == 37) return;
  out[threadIdx.x] = __shfl_xor_sync(kAll, 1, 2);
}

TEST_P(EmulatedDivergence, a_shuffle_with_a_lane_that_has_exited) {
  DeviceArray<int> out(64);
  EXPECT_EQ(
      error_of([&] { launch<lane_exits>(kGrid, 64, 0, nullptr, out.data()); }),
      concat("kernel lane_exits, block (1,2,0), thread (37,0,0): lane 5 has exited, but thread (32,0,0) "
             "waits in __shfl_xor_sync in ",
             line(kLaneExits), ", whose mask 0xffffffff contains lane 5"));
}

constexpr unsigned kElsewhere = __LINE__ + 4;
__global__ void elsewhere(int* out) {
  int value = 0;
  if (here() && threadIdx.x == 6) {
    value = __shfl_sync(kAll, 1, 0);
  } else {
    value = __shfl_sync(kAll, 1, 0);
  }
  out[threadIdx.x] = value;
}

TEST_P(EmulatedDivergence, shuffles_at_different_lines) {
  DeviceArray<int> out(32);
  expect_error({"kernel elsewhere", kBlock, "__shfl_sync", line(kElsewhere), line(kElsewhere + 2), "(6,0,0)"},
               [&] { launch<elsewhere>(kGrid, 32, 0, nullptr, out.data()); });
}

__global__ void different_masks() { __syncwarp(here() && threadIdx.x == 3 ? 0xFF : kAll); }

TEST_P(EmulatedDivergence, lanes_that_name_different_masks) {
  expect_error({"kernel different_masks", kBlock, "__syncwarp"},
               [] { launch<different_masks>(kGrid, 32, 0, nullptr); });
}

__global__ void barrier_or_ballot(unsigned* out) {
  if (here() && threadIdx.x == 9) {
    __syncthreads();
  } else {
    out[threadIdx.x] = __ballot_sync(kAll, 1);
    __syncthreads();
  }
}

TEST_P(EmulatedDivergence, a_lane_waits_at_a_barrier_and_the_others_for_it) {
  DeviceArray<unsigned> out(32);
  expect_error(
      {"kernel barrier_or_ballot", kBlock, "thread (9,0,0): lane 9 waits in __syncthreads", "__ballot_sync"},
      [&] { launch<barrier_or_ballot>(kGrid, 32, 0, nullptr, out.data()); });
}

constexpr unsigned kReadsOutside = __LINE__ + 2;
__global__ void reads_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xFFFF, 1, here() && threadIdx.x == 11 ? 20 : 3);
}

TEST_P(EmulatedDivergence, a_lane_reads_from_one_that_the_mask_does_not_name) {
  DeviceArray<int> out(32);
  expect_error(
      {"kernel reads_outside, block (1,2,0), thread (11,0,0): lane 11 reads from lane 20 in __shfl_sync in " +
       line(kReadsOutside) + ", which is not in the mask 0x0000ffff"},
      [&] { launch<reads_outside>(kGrid, 32, 0, nullptr, out.data()); });
}

}  // namespace
}  // namespace stagegpt::test
