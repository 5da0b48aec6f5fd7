// The exact error messages of the emulator about wrong kernels, and the limits stated in them.
#include <cstdlib>

#include "tests/emulation/emulated.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// "f.cpp:12" for a line of this file.
std::string line(unsigned number) { return concat("messages_test.cpp:", number); }

// ---- Calls of a warp and of a block ----

constexpr unsigned kNotNamed = __LINE__ + 2;
__global__ void not_named() {
  if (threadIdx.x == 35) __syncwarp(0x000000F1);
}

constexpr unsigned kNoSuchLane = __LINE__ + 2;
__global__ void no_such_lane() {
  if (threadIdx.x >= 32) __syncwarp(0x3);
}

constexpr unsigned kOneLine = __LINE__ + 2;
__global__ void one_line(unsigned* out) {
  out[threadIdx.x] = threadIdx.x == 0 ? __ballot_sync(3, 1) : __ballot_sync(3, 0);
}

constexpr unsigned kBarriers = __LINE__ + 3;
__global__ void barriers() {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __syncthreads_or(1);
}

__global__ void widths(int* out, int which) {
  if (which == 0) out[0] = __shfl_sync(1, 1, 0, 0);
  if (which == 1) out[0] = __shfl_xor_sync(1, 1, 1, 64);
  if (which == 2) out[0] = __shfl_down_sync(1, 1, 1, 12);
  if (which == 3) out[0] = __shfl_sync(1, 1, 0, 1) + __shfl_xor_sync(1, 1, 0, 32);
}

TEST(EmulatorSays, which_lane_a_warp_waits_for_in_vain) {
  DeviceArray<unsigned> out(64);
  EXPECT_EQ(error_of([] { launch<not_named>(1, 64, 0, nullptr); }),
            concat("kernel not_named, block (0,0,0), thread (35,0,0): lane 3 calls __syncwarp in ",
                   line(kNotNamed), " with the mask 0x000000f1, which does not contain this lane"));
  EXPECT_EQ(
      error_of([] { launch<no_such_lane>(1, 33, 0, nullptr); }),
      concat("kernel no_such_lane, block (0,0,0), thread (32,0,0): waits in __syncwarp in ",
             line(kNoSuchLane), ", whose mask 0x00000003 contains lane 1, but the block has no such thread"));
  // Two calls on the same line are different calls.
  EXPECT_EQ(error_of([&] { launch<one_line>(1, 2, 0, nullptr, out.data()); }),
            concat("kernel one_line, block (0,0,0), thread (1,0,0): lane 1 waits in __ballot_sync in ",
                   line(kOneLine), ", but thread (0,0,0) waits in __ballot_sync in ", line(kOneLine),
                   ", whose mask 0x00000003 contains lane 1"));
}

TEST(EmulatorSays, which_barriers_are_not_the_same) {
  EXPECT_EQ(
      error_of([] { launch<barriers>(1, 2, 0, nullptr); }),
      concat("kernel barriers, block (0,0,0), thread (1,0,0): calls __syncthreads_or in ",
             line(kBarriers + 2), ", while thread (0,0,0) waits in __syncthreads in ", line(kBarriers)));
}

TEST(EmulatorSays, which_width_no_group_of_lanes_has) {
  DeviceArray<int> out(1);
  const char* const names[] = {"__shfl_sync", "__shfl_xor_sync", "__shfl_down_sync"};
  const int widths_of[] = {0, 64, 12};
  for (int which = 0; which < 3; ++which) {
    const std::string error = error_of([&] { launch<widths>(1, 1, 0, nullptr, out.data(), which); });
    EXPECT_TRUE(
        error.starts_with(concat("kernel widths, block (0,0,0), thread (0,0,0): ", names[which], " in ")))
        << error;
    EXPECT_TRUE(
        error.ends_with(concat(" with a width of ", widths_of[which], ", expected a power of two up to 32")))
        << error;
  }
  EXPECT_EQ(error_of([&] { launch<widths>(1, 1, 0, nullptr, out.data(), 3); }), "");
}

// ---- Shared memory ----

__global__ void race(int which) {
  STAGEGPT_SHARED(float, tile, 4);
  if (threadIdx.x == 0 && which != 2) tile[3] = 1;
  if (which == 2) {
    if (threadIdx.x == 1) tile[3] = 1;
    __syncthreads();
    if (threadIdx.x == 0) tile[0] = tile[3];
  }
  if (threadIdx.x == 1 && which == 0) tile[2] = tile[3];
  if (threadIdx.x == 1 && which != 0) tile[3] = 2;
}

__global__ void dynamic_twice() {
  STAGEGPT_DYNAMIC_SHARED(float, first);
  STAGEGPT_DYNAMIC_SHARED(int, second);
}

// Declares `kCount` arrays of one element.
template <int kCount>
__device__ void declare() {
  STAGEGPT_SHARED(float, one, 1);
  one[0] = 1;
  if constexpr (kCount > 1) declare<kCount - 1>();
}
template <int kCount>
__global__ void many_arrays() {
  declare<kCount>();
}

// The offsets of shared arrays with odd sizes, after dynamic shared memory of an odd size.
__global__ void addresses(int* out) {
  STAGEGPT_DYNAMIC_SHARED(char, dynamic);
  STAGEGPT_SHARED(char, odd, 17);
  STAGEGPT_SHARED(float, behind, 1);
  const auto at = [&](const void* data) {
    return static_cast<int>(static_cast<const char*>(data) - static_cast<const char*>(dynamic.span().data));
  };
  out[0] = at(odd.span().data);
  out[1] = at(behind.span().data);
  out[2] = static_cast<int>(dynamic.span().count);
  out[3] = static_cast<int>(odd.span().count);
}

__global__ void full_with_dynamic() {
  STAGEGPT_SHARED(float, rest, 12284);  // 49,136 bytes
  STAGEGPT_DYNAMIC_SHARED(float, dynamic);
  dynamic[3] = rest[12283] = 1;
}

TEST(EmulatorSays, who_races_with_whom) {
  const std::string begin = "kernel race, block (0,0,0), thread (1,0,0): ";
  EXPECT_EQ(error_of([] { launch<race>(1, 2, 0, nullptr, 0); }),
            begin + "reads tile[3], which thread (0,0,0) has written with no barrier in between");
  EXPECT_EQ(error_of([] { launch<race>(1, 2, 0, nullptr, 1); }),
            begin + "writes tile[3], which thread (0,0,0) has written with no barrier in between");
  emulation::set_thread_order({Order::reverse, 0});  // thread 0 continues first after the barrier
  EXPECT_EQ(error_of([] { launch<race>(1, 2, 0, nullptr, 2); }),
            begin + "writes tile[3], which thread (0,0,0) has read with no barrier in between");
  emulation::set_thread_order({});
}

TEST(EmulatorSays, what_a_block_has_no_room_for) {
  EXPECT_EQ(
      error_of([] { launch<dynamic_twice>(1, 1, 16, nullptr); }),
      "kernel dynamic_twice, block (0,0,0), thread (0,0,0): declares dynamic shared memory twice, the second "
      "time as second");
  EXPECT_EQ(error_of([] { launch<many_arrays<32>>(1, 1, 0, nullptr); }), "");
  EXPECT_EQ(error_of([] { launch<many_arrays<33>>(1, 1, 0, nullptr); }),
            "kernel many_arrays<33>, block (0,0,0), thread (0,0,0): declares more than 32 shared arrays");
  // With dynamic shared memory, static arrays included, a block may have more than 48 KiB.
  EXPECT_EQ(error_of([] { launch<full_with_dynamic>(1, 1, 49152 - 49136 + 16, nullptr); }), "");
  EXPECT_EQ(error_of([] { launch<full_with_dynamic>(1, 1, 101376 - 49136, nullptr); }), "");
  EXPECT_EQ(error_of([] { launch<full_with_dynamic>(1, 1, 101376 - 49136 + 1, nullptr); }),
            "kernel full_with_dynamic, block (0,0,0), thread (0,0,0): shared arrays take 101392 bytes with "
            "rest, more than the 101376 of a block");
}

TEST(EmulatedArrays, begin_at_multiples_of_16_bytes) {
  DeviceArray<int> out(4);
  launch<addresses>(1, 1, 5, nullptr, out.data());
  EXPECT_EQ(out.values(), (std::vector<int>{16, 48, 5, 17}));
  launch<addresses>(1, 1, 32, nullptr, out.data());
  EXPECT_EQ(out.values(), (std::vector<int>{32, 64, 32, 17}));
}

// ---- The device and its settings ----

TEST(EmulatorSays, which_device_there_is_not) {
  const auto error = [](int index) { return refusal([index] { open_device(index); }); };
  EXPECT_EQ(device_count(), 8);
  EXPECT_EQ(open_device(7).id, "emulated 7");
  EXPECT_EQ(error(8),
            "--device: 8: this machine has 8 emulated GPUs, numbered from 0 (STAGEGPT_EMULATOR_DEVICES)");
  EXPECT_EQ(error(-1),
            "--device: -1: this machine has 8 emulated GPUs, numbered from 0 (STAGEGPT_EMULATOR_DEVICES)");
  const auto with = [&](const char* count, int index) {
    setenv("STAGEGPT_EMULATOR_DEVICES", count, 1);
    const std::string text = error(index);
    unsetenv("STAGEGPT_EMULATOR_DEVICES");
    return text;
  };
  EXPECT_EQ(with("1", 0), "");
  EXPECT_EQ(with("1", 1),
            "--device: 1: this machine has 1 emulated GPU, numbered from 0 (STAGEGPT_EMULATOR_DEVICES)");
  EXPECT_EQ(with("1024", 1023), "");
  for (const std::string count : {"0", "1025", "", "2x", "-1", "99999999999"}) {
    EXPECT_EQ(with(count.c_str(), 0),
              "STAGEGPT_EMULATOR_DEVICES: expected a number from 1 to 1024, got \"" + count + '"');
  }
}

TEST(EmulatorSays, how_many_os_threads_it_takes) {
  const auto error = [](int count) { return internal_error([count] { emulation::set_threads(count); }); };
  const int most = emulation::kMostThreads;
  EXPECT_NE(error(0).find(concat("the emulator takes 1 to ", most, " OS threads, got 0")), std::string::npos);
  EXPECT_NE(error(most + 1).find(concat("OS threads, got ", most + 1)), std::string::npos);
  EXPECT_EQ(error(most), "");
  EXPECT_EQ(error(1), "");
  emulation::set_threads(2);
}

}  // namespace
}  // namespace stagegpt::test
