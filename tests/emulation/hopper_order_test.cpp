// What barriers of compute capability 9.0 order, and the races that the emulator finds without them, in every
// thread order.
#include "stage2_cuda/hopper.h"
#include "stage2_cuda/kernels/vector.cuh"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

using EmulatedOrder = InEveryOrderOn90;
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedOrder, kOrders, order_name);

struct StoresMemory {
  SharedTile tile;
};

enum class StoresFault {
  none,
  no_proxy,     // no fence_proxy_async between stores to a tile and a product
  no_sync_warp  // reads what another lane has stored
};

// Each lane stores a row's pair, and reads that of the next lane; then the tile is multiplied by itself.
__global__ void stores(float* c, StoresFault fault) {
  STAGEGPT_SHARED_STRUCT(StoresMemory, memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  for (int i = 0; i < 16; ++i) memory.tile.store_pair(16 * warp + i, 2 * lane, rounded_pair(1, 2));
  if (fault != StoresFault::no_sync_warp) __syncwarp();
  c[thread] = floats_of(memory.tile.load8(16 * warp, 8 * (lane / 4))).v[2 * (lane % 4 ^ 1)];
  if (fault != StoresFault::no_proxy) fence_proxy_async();
  named_barrier(1, 128);
  Accumulator sums;
  wgmma_fence(sums);
  wgmma(sums, memory.tile.columns(0), memory.tile.columns(0), false);
  wgmma_commit();
  wgmma_wait<0>(sums);
  c[thread] += sums[0];
}

void run_stores(StoresFault fault) {
  DeviceArray<float> c(128);
  launch<stores>(1, 128, shared_bytes_of<StoresMemory>(), nullptr, c.data(), fault);
  EXPECT_EQ(c.values()[17], 1 + 8 * (1 + 4));
}

TEST_P(EmulatedOrder, orders_stores_to_a_tile) {
  run_stores(StoresFault::none);
  expect_error({"without fence_proxy_async() after it"}, [] { run_stores(StoresFault::no_proxy); });
  EXPECT_NE(error_of([] { run_stores(StoresFault::no_sync_warp); }), "");
}

// Warp 4 stores a tile, which warps 0 to 3 multiply by itself, after a barrier if `met`.
__global__ void stored_by_another(float* c, bool met) {
  STAGEGPT_SHARED_STRUCT(StoresMemory, memory);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= 128) {
    for (int i = 0; i < 64; ++i) memory.tile.store_pair(i, 2 * (thread % 32), rounded_pair(1, 2));
    fence_proxy_async();
  }
  if (met) named_barrier(1, 160);
  if (thread >= 128) return;
  Accumulator sums;
  wgmma_fence(sums);
  wgmma(sums, memory.tile.columns(0), memory.tile.columns(0), false);
  wgmma_commit();
  wgmma_wait<0>(sums);
  c[thread] = sums[0];
}

TEST_P(EmulatedOrder, orders_stores_before_products_of_other_warps) {
  DeviceArray<float> c(128);
  const auto run = [&](bool met) {
    launch<stored_by_another>(1, 160, shared_bytes_of<StoresMemory>(), nullptr, c.data(), met);
  };
  run(true);
  EXPECT_EQ(c.values()[17], 8 * (1 + 4));
  // The product may come first, or between the stores.
  expect_one_error({"to which another warp has stored with no barrier in between", "uninitialised",
                    "without fence_proxy_async()"},
                   [&] { run(false); });
}

struct PassedMemory {
  Barrier barrier;
};

// Warp 0 writes numbers, which pass through a barrier of warps 0 and 1 and a named barrier of warps 1 and 2.
// Warp `reader` reads them; warp 3 is at none of these barriers. If not `together`, no __syncwarp orders the
// writes of other lanes before the arrival of lane 31.
__global__ void passed_on(float* out, int reader, bool together) {
  STAGEGPT_SHARED(float, numbers, 32);
  STAGEGPT_SHARED_STRUCT(PassedMemory, memory);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    memory.barrier.init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (warp == 0) {
    numbers[lane] = static_cast<float>(lane);
    if (together) __syncwarp();
    if (lane == 31) memory.barrier.arrive();
  }
  if (warp == 1) memory.barrier.wait(0);
  if (warp == 1 || warp == 2) named_barrier(1, 64);
  if (warp == 3) named_barrier(2, 32);
  if (warp == reader) out[lane] = numbers[31 - lane];
}

TEST_P(EmulatedOrder, orders_warps_by_the_barriers_at_which_they_meet) {
  DeviceArray<float> out(32);
  const auto run = [&](int reader, bool together) {
    launch<passed_on>(1, 128, shared_bytes_of<PassedMemory>(), nullptr, out.data(), reader, together);
  };
  for (const int reader : {1, 2}) {
    run(reader, true);
    EXPECT_EQ(out.values()[0], 31);
  }
  // A reader that comes too early finds nothing.
  for (const int reader : {1, 2, 3}) {
    expect_one_error({"with no barrier in between", "uninitialised"}, [&] { run(reader, reader == 3); });
  }
}

// Lane 1 reads what lane 0 of its warp has written. Between them is a barrier, and no __syncwarp.
__global__ void passed_in_warp(float* out, bool named) {
  STAGEGPT_SHARED(float, number, 1);
  STAGEGPT_SHARED_STRUCT(PassedMemory, memory);
  if (threadIdx.x == 0) {
    memory.barrier.init(32);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) number[0] = 5;
  if (named) {
    named_barrier(1, 32);
  } else {
    memory.barrier.arrive();
    memory.barrier.wait(0);
  }
  if (threadIdx.x == 1) *out = number[0];
}

TEST_P(EmulatedOrder, orders_lanes_by_the_barriers_at_which_they_meet) {
  for (const bool named : {false, true}) {
    DeviceArray<float> out(1);
    launch<passed_in_warp>(1, 32, shared_bytes_of<PassedMemory>(), nullptr, out.data(), named);
    EXPECT_EQ(out.values()[0], 5) << named;
  }
}

struct RingMemory {
  SharedFloats<64> floats[2];
  Barrier full[2], empty[2];
};

// eager: copies without waiting for an empty stage. released: reads a stage after it has released it.
enum class RingFault { none, eager, released };

// A warp copies rows of 64 floats into a ring of two; another one adds them.
__global__ void ring(float* sums, const float* rows, int count, RingFault fault) {
  STAGEGPT_SHARED_STRUCT(RingMemory, memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) memory.full[i].init(1), memory.empty[i].init(32);
    fence_barrier_init();
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x >= 32) {
    if (lane != 0) return;
    for (int i = 0; i < count; ++i) {
      if (fault != RingFault::eager) memory.empty[i % 2].wait(static_cast<unsigned>(i / 2 % 2) ^ 1);
      memory.full[i % 2].arrive_and_expect(256);
      bulk_load(memory.floats[i % 2], rows + 64 * i, memory.full[i % 2]);
    }
    return;
  }
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    memory.full[i % 2].wait(static_cast<unsigned>(i / 2 % 2));
    if (fault == RingFault::released) memory.empty[i % 2].arrive();
    sum += memory.floats[i % 2][lane] + memory.floats[i % 2].pair(32 + 2 * (lane / 2)).x;
    if (fault != RingFault::released) memory.empty[i % 2].arrive();
  }
  sums[lane] = sum;
}

TEST_P(EmulatedOrder, copies_in_a_ring) {
  constexpr int kCount = 7;
  std::vector<float> rows;
  for (int i = 0; i < 64 * kCount; ++i) rows.push_back(static_cast<float>(i * 7 % 11));
  DeviceArray<float> in(rows), out(32);
  const auto run = [&](RingFault fault) {
    launch<ring>(1, 64, shared_bytes_of<RingMemory>(), nullptr, out.data(), in.data(), kCount, fault);
  };
  run(RingFault::none);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    float want = 0;
    for (std::size_t i = 0; i < kCount; ++i) want += rows[64 * i + lane] + rows[64 * i + 32 + lane / 2 * 2];
    EXPECT_EQ(out.values()[lane], want);
  }
  expect_error({"starts a copy to memory[", "has read with no barrier in between"},
               [&] { run(RingFault::released); });
  expect_one_error({"another copy is under way", "has all 1 arrivals", "waits in Barrier::wait",
                    "this thread has not waited for phase", "with no barrier in between"},
                   [&] { run(RingFault::eager); });
}

}  // namespace
}  // namespace stagegpt::test
