// Copies and products of compute capability 9.0, in every thread order: what they compute, and the faults
// that the emulator finds. What barriers order is in hopper_order_test.cpp.
#include "stage2_cuda/hopper.h"

#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/kernels/vector.cuh"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

using EmulatedHopper = InEveryOrderOn90;
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedHopper, kOrders, order_name);

constexpr int kSide = 64;
constexpr std::size_t kElements = std::size_t{kSide} * kSide;

enum class Fault {
  none,
  parity,         // waits for the phase before
  bytes,          // expects fewer bytes than are copied
  more_bytes,     // expects more
  no_copy,        // starts no copy
  not_waited,     // reads an accumulator before its product is waited for
  no_fence,       // no wgmma_fence after an accumulator was changed
  changed,        // changes an operand in flight
  too_early,      // copies to a tile that a product reads
  not_met,        // copies to a tile that products of other warps read, or have read
  met,            // no fault: the same after a barrier of these warps
  not_ended,      // waits for too few groups
  one_warp,       // a wait by one warp only
  other_order,    // one warp starts its products in another order
  no_init_fence,  // no fence_barrier_init
  not_met_init,   // no __syncthreads after a barrier is initialised
  half            // half of the warpgroup comes to a named barrier
};

struct ProductMemory {
  SharedTile a, b;
  Barrier full;
};

// c (64,64) = a · bᵀ, or a · b if `rows`; a from registers if `registers`. One warpgroup, and one warp that
// copies.
__global__ void product(float* c, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                        bool rows, bool registers, Fault fault) {
  STAGEGPT_SHARED_STRUCT(ProductMemory, memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  if (thread == 0) {
    memory.full.init(1);
    if (fault != Fault::no_init_fence) fence_barrier_init();
  }
  if (fault != Fault::not_met_init) __syncthreads();
  if (warp == 4) {
    if (lane != 0) return;
    const int bytes = fault == Fault::bytes        ? kTileBytes
                      : fault == Fault::more_bytes ? 3 * kTileBytes
                                                   : 2 * kTileBytes;
    if (fault != Fault::no_copy) memory.full.arrive_and_expect(bytes);
    if (fault == Fault::no_copy) return;
    tma_load(memory.a, a, 0, 0, 0, 0, memory.full);
    tma_load(memory.b, b, 0, 0, 0, 0, memory.full);
    return;
  }
  const auto copy_again = [&] {
    memory.full.arrive_and_expect(kTileBytes);
    tma_load(memory.b, b, 0, 0, 0, 0, memory.full);
  };
  memory.full.wait(fault == Fault::parity ? 1 : 0);
  Accumulator sums;
  Operand left;
  if (registers) {
    Accumulator values;
    for (int e = 0; e < 32; ++e) {
      const int row = 16 * warp + lane / 4 + 8 * (e / 2 % 2), column = 8 * (e / 4) + 2 * (lane % 4) + e % 2;
      values[e] = floats_of(memory.a.load8(row, column / 8 * 8)).v[column % 8];
    }
    left.round(values);
  }
  for (int e = 0; e < 32; ++e) sums[e] = 0;
  if (fault != Fault::no_fence) wgmma_fence(sums, left);
  for (int k = 0; k < 4; ++k) {
    const int part = fault == Fault::other_order && warp == 1 ? 3 - k : k;
    const auto right = rows ? memory.b.rows(part) : memory.b.columns(part);
    registers ? wgmma(sums, left.part(part), right, true) : wgmma(sums, memory.a.columns(part), right, true);
  }
  wgmma_commit();
  if (fault == Fault::not_waited) c[thread] = sums[0];
  if (fault == Fault::changed) left.round(Accumulator());
  if (fault == Fault::too_early && thread == 0) copy_again();
  if (fault == Fault::one_warp && warp == 1) wgmma_wait<0>(sums);
  fault == Fault::not_ended ? wgmma_wait<1>(sums) : wgmma_wait<0>(sums, left);
  if (fault == Fault::not_met && thread == 0) copy_again();
  if (fault != Fault::half || warp < 2) named_barrier(1, 128);
  if (fault == Fault::met && thread == 0) {
    copy_again();
    memory.full.wait(1);
  }
  for (int e = 0; e < 32; ++e) {
    const int row = 16 * warp + lane / 4 + 8 * (e / 2 % 2), column = 8 * (e / 4) + 2 * (lane % 4) + e % 2;
    c[64 * row + column] = sums[e];
  }
}

// Runs product() on 64×64 matrices, of which b has `given` rows; the others are zero.
std::vector<float> run_product(bool rows, bool registers, Fault fault = Fault::none, int given = kSide) {
  DeviceArray<Bf16> a(small_numbers(kElements, 5)), b(small_numbers(kElements, 3));
  DeviceArray<float> c(kElements);
  launch<product>(1, 160, shared_bytes_of<ProductMemory>(), nullptr, c.data(),
                  make_tensor_map(a.data(), {64, 1, 64, 1}), make_tensor_map(b.data(), {64, 1, given, 1}),
                  rows, registers, fault);
  return c.values();
}

void expect_product(bool rows, bool registers, int given = kSide) {
  const std::vector<Bf16> a = small_numbers(kElements, 5), b = small_numbers(kElements, 3);
  const std::vector<float> c = run_product(rows, registers, Fault::none, given);
  for (std::size_t row = 0; row < kSide; ++row) {
    for (std::size_t column = 0; column < kSide; ++column) {
      float want = 0;
      for (std::size_t k = 0; k < kSide; ++k) {
        const std::size_t of_b = rows ? k : column;
        if (of_b < static_cast<std::size_t>(given))
          want += as_float(a[64 * row + k]) * as_float(b[rows ? 64 * k + column : 64 * column + k]);
      }
      ASSERT_EQ(c[64 * row + column], want) << row << ',' << column;
    }
  }
}

TEST_P(EmulatedHopper, multiplies_tiles) {
  expect_product(false, false);
  expect_product(true, false);
}
TEST_P(EmulatedHopper, multiplies_registers_by_a_tile) {
  expect_product(false, true);
  expect_product(true, true);
}
TEST_P(EmulatedHopper, copies_zeros_beyond_a_tensor) { expect_product(true, false, 37); }

TEST_P(EmulatedHopper, copies_only_aligned_rows) {
  DeviceArray<Bf16> data(small_numbers(kElements, 5));
  const std::string refusal = "address and rows need a multiple of 16 bytes";
  expect_error({refusal}, [&] { make_tensor_map(data.data() + 4, {64, 1, 60, 1}); });
  expect_error({refusal, "(1,64,1,60)"}, [&] { make_tensor_map(data.data(), {60, 1, 64, 1}); });
  expect_error({"extents 1 to"}, [&] { make_tensor_map(data.data(), {64, 1, 0, 1}); });
  make_tensor_map(data.data() + 8, {56, 1, 64, 1});
}

TEST_P(EmulatedHopper, needs_its_capability) {
  const EmulatedDevice older(80);
  expect_error({"kernel product", "needs compute capability 9.0, and the emulated device has 8.0"},
               [] { run_product(false, false); });
}

void expect_fault(Fault fault, bool registers, const std::vector<std::string>& parts) {
  std::vector<std::string> all = {"kernel product, block (0,0,0), thread ("};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_error(all, [&] { run_product(true, registers, fault); });
}

TEST_P(EmulatedHopper, finds_a_wait_for_the_phase_before) {
  // Where the copies are early enough, the wait is for the phase after this one instead.
  expect_one_error({"this thread has not waited for phase 0 of the copy's barrier",
                    "for phase 1 of the barrier at byte 16384", "which is uninitialised"},
                   [] { run_product(true, false, Fault::parity); });
}
TEST_P(EmulatedHopper, finds_a_wrong_count_of_bytes) {
  expect_fault(Fault::bytes, false, {"starts a copy of 8192 bytes in hopper_test.cpp:", "expects"});
  expect_fault(Fault::more_bytes, false,
               {"waits in Barrier::wait in hopper_test.cpp:", "for phase 0 of the barrier at byte 16384",
                "lacks 0 of 1 arrivals and 8192 of 24576 bytes"});
}
TEST_P(EmulatedHopper, finds_a_barrier_that_other_threads_may_not_use_yet) {
  expect_fault(Fault::no_init_fence, false,
               {"thread (0,0,0), which initialised it, has not called fence_barrier_init() since"});
  expect_one_error({"and this one have met at no barrier", "a barrier that is not initialised"},
                   [] { run_product(true, false, Fault::not_met_init); });
}
TEST_P(EmulatedHopper, reports_a_deadlock) {
  expect_fault(Fault::no_copy, false, {"lacks 1 of 1 arrivals and 0 of 0 bytes"});
  expect_fault(Fault::half, false,
               {"waits in named_barrier 1 in hopper_test.cpp:", "where 64 of 128 threads"});
}
TEST_P(EmulatedHopper, finds_registers_that_are_used_in_flight) {
  expect_fault(Fault::not_waited, false, {"uses an accumulator while a product"});
  expect_fault(Fault::changed, true, {"changes an operand while a product"});
  expect_fault(Fault::not_ended, false,
               {"wgmma_wait in hopper_test.cpp:", "names registers of products in a group for which"});
}
TEST_P(EmulatedHopper, finds_warps_of_a_warpgroup_that_differ) {
  expect_fault(Fault::one_warp, false, {"has done 5 of the 6 steps of its warpgroup", "calls wgmma_wait<0>"});
  expect_fault(Fault::other_order, false,
               {"this warp starts wgmma in hopper_test.cpp:", "another warp of its warpgroup starts wgmma"});
}
TEST_P(EmulatedHopper, finds_a_missing_fence_of_registers) {
  expect_fault(Fault::no_fence, false,
               {"its accumulator has been used or changed since the last wgmma_fence"});
}
TEST_P(EmulatedHopper, finds_a_copy_to_a_tile_in_use) {
  expect_fault(Fault::too_early, false,
               {"starts a copy in hopper_test.cpp:", "tile at byte 8192", "a product reads"});
  EXPECT_EQ(error_of([] { run_product(true, false, Fault::met); }), "");
  const std::string error = error_of([] { run_product(true, false, Fault::not_met); });
  EXPECT_NE(error.find("tile at byte 8192"), std::string::npos) << error;
  bool found = error.find("which a product reads") != std::string::npos ||  // or is late for its own
               error.find("starts a product that reads") != std::string::npos;
  for (const unsigned warp : {1U, 2U, 3U})
    found |= error.find(concat("a product of thread (", 32 * warp, ",0,0) and its warp has read")) !=
             std::string::npos;
  EXPECT_TRUE(found) << error;
}

struct WideMemory {
  SharedTile a;
  WideTile<2> b;
  Barrier full;
};

// a · bᵀ, b (128,64), of which only the first `tiles` are copied. One warpgroup.
__global__ void wide_product(const __grid_constant__ TensorMap map, int tiles) {
  STAGEGPT_SHARED_STRUCT(WideMemory, memory);
  if (threadIdx.x == 0) {
    memory.full.init(1);
    fence_barrier_init();
    memory.full.arrive_and_expect((1 + tiles) * kTileBytes);
    tma_load(memory.a, map, 0, 0, 0, 0, memory.full);
    for (int i = 0; i < tiles; ++i) tma_load(memory.b.part[i], map, 0, 0, 0, 0, memory.full);
  }
  __syncthreads();
  memory.full.wait(0);
  AccumulatorOf<128> sums;
  wgmma_fence(sums);
  wgmma(sums, memory.a.columns(0), memory.b.columns(0), false);
  wgmma_commit();
  wgmma_wait<0>(sums);
}

TEST_P(EmulatedHopper, checks_each_tile_of_a_wide_operand) {
  DeviceArray<Bf16> data(small_numbers(kElements, 5));
  const auto run = [&](int tiles) {
    launch<wide_product>(1, 128, shared_bytes_of<WideMemory>(), nullptr,
                         make_tensor_map(data.data(), {64, 1, 64, 1}), tiles);
  };
  run(2);
  expect_error(
      {"kernel wide_product", "reads the tile at byte 16384 of shared memory, which is uninitialised"},
      [&] { run(1); });
}

}  // namespace
}  // namespace stagegpt::test
