// The exact error messages of the emulator about wrong kernels, and the limits stated in them.
#include <omp.h>

#include <cstdlib>

#include "common/base/error.h"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// "f.cpp:12" for a line of this file.
std::string line(unsigned number) { return concat("messages_test.cpp:", number); }

template <class Error>
std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---- Calls of a warp and of a block ----

constexpr unsigned kNotNamed = __LINE__ + 2;
__global__ void not_named() {
  if (threadIdx.x == 35) __syncwarp(0x000000F1);
}

constexpr unsigned kNoSuchLane = __LINE__ + 2;
__global__ void no_such_lane() {
  if (threadIdx.x >= 32) __syncwarp(0x3);
}

constexpr unsigned kExited = __LINE__ + 2;
__global__ void exited() {
  if (threadIdx.x == 32) __syncwarp(0x3);
}

constexpr unsigned kOneLine = __LINE__ + 2;
__global__ void one_line(unsigned* out) {
  out[threadIdx.x] = threadIdx.x == 0 ? __ballot_sync(3, 1) : __ballot_sync(3, 0);
}

constexpr unsigned kHalfLeaves = __LINE__ + 3;
__global__ void half_leaves(int* out) {
  if (threadIdx.x < 2) return;
  out[threadIdx.x] = __syncthreads_or(1);
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
  if (which == 2) out[0] = __shfl_down_sync(1, 1, 1, -1);
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
  EXPECT_EQ(
      error_of([] { launch<exited>(1, 34, 0, nullptr); }),
      concat("kernel exited, block (0,0,0), thread (33,0,0): lane 1 has exited, but thread (32,0,0) waits in "
             "__syncwarp in ",
             line(kExited), ", whose mask 0x00000003 contains lane 1"));
  // Two calls on the same line are different calls.
  EXPECT_EQ(error_of([&] { launch<one_line>(1, 2, 0, nullptr, out.data()); }),
            concat("kernel one_line, block (0,0,0), thread (1,0,0): lane 1 waits in __ballot_sync in ",
                   line(kOneLine), ", but thread (0,0,0) waits in __ballot_sync in ", line(kOneLine),
                   ", whose mask 0x00000003 contains lane 1"));
}

TEST(EmulatorSays, which_thread_a_block_waits_for_in_vain) {
  DeviceArray<int> out(4);
  EXPECT_EQ(
      error_of([&] { launch<half_leaves>(1, 4, 0, nullptr, out.data()); }),
      concat("kernel half_leaves, block (0,0,0), thread (0,0,0): has exited, but thread (2,0,0) waits in "
             "__syncthreads_or in ",
             line(kHalfLeaves), " for all threads of the block"));
  EXPECT_EQ(
      error_of([] { launch<barriers>(1, 2, 0, nullptr); }),
      concat("kernel barriers, block (0,0,0), thread (1,0,0): calls __syncthreads_or in ",
             line(kBarriers + 2), ", while thread (0,0,0) waits in __syncthreads in ", line(kBarriers)));
}

TEST(EmulatorSays, which_width_no_group_of_lanes_has) {
  DeviceArray<int> out(1);
  const char* const names[] = {"__shfl_sync", "__shfl_xor_sync", "__shfl_down_sync"};
  const int widths_of[] = {0, 64, -1};
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

__global__ void throws(int which) {
  if (which == 0) throw std::runtime_error("a message");
  throw which;
}

TEST(EmulatorSays, what_a_kernel_throws) {
  const std::string begin = "kernel throws, block (0,0,0), thread (0,0,0): ";
  EXPECT_EQ(error_of([] { launch<throws>(1, 1, 0, nullptr, 0); }), begin + "a message");
  EXPECT_EQ(error_of([] { launch<throws>(1, 1, 0, nullptr, 7); }), begin + "an exception of an unknown type");
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

__global__ void uninitialised() {
  STAGEGPT_SHARED(float, tile, 4);
  tile[0] = tile[1];
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
  STAGEGPT_DYNAMIC_SHARED(float, dynamic);
  STAGEGPT_SHARED(float, rest, 12284);  // 49,136 bytes
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
  EXPECT_EQ(error_of([] { launch<uninitialised>(1, 1, 0, nullptr); }),
            "kernel uninitialised, block (0,0,0), thread (0,0,0): reads tile[1], which is uninitialised: no "
            "thread of "
            "the block has written it yet");
}

TEST(EmulatorSays, what_a_block_has_no_room_for) {
  EXPECT_EQ(
      error_of([] { launch<dynamic_twice>(1, 1, 16, nullptr); }),
      "kernel dynamic_twice, block (0,0,0), thread (0,0,0): declares dynamic shared memory twice, the second "
      "time as second");
  EXPECT_EQ(error_of([] { launch<many_arrays<32>>(1, 1, 0, nullptr); }), "");
  EXPECT_EQ(error_of([] { launch<many_arrays<33>>(1, 1, 0, nullptr); }),
            "kernel many_arrays<33>, block (0,0,0), thread (0,0,0): declares more than 32 shared arrays");
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

__global__ void misaligned(float* out) { store4(out, 2, load4(out, 0)); }

TEST(EmulatorSays, which_index_is_misaligned) {
  DeviceArray<float> out(8);
  EXPECT_EQ(
      error_of([&] { launch<misaligned>(1, 1, 0, nullptr, out.data()); }),
      "kernel misaligned, block (0,0,0), thread (0,0,0): store4 at index 2: misaligned address, 16 bytes are "
      "needed");
}

// ---- Launches, the device and its settings ----

__global__ void nothing() {}
__global__ void takes_two(float*, const float*) {}

TEST(EmulatorSays, which_launches_are_impossible) {
  const auto error = [](dim3 grid, dim3 block, std::size_t shared) {
    return error_of([&] { launch<nothing>(grid, block, shared, nullptr); });
  };
  const std::string grids = " blocks, expected at most (2147483647,65535,65535)";
  const std::string blocks = " threads, expected at most 1024, and at most 64 along z";
  EXPECT_EQ(error(dim3(2, 0, 3), 1, 0), "kernel nothing: a grid of (2,0,3) blocks");
  EXPECT_EQ(error(dim3(2, 65536, 3), 1, 0), "kernel nothing: a grid of (2,65536,3)" + grids);
  EXPECT_EQ(error(1, dim3(4, 5, 0), 0), "kernel nothing: blocks of (4,5,0) threads");
  EXPECT_EQ(error(1, dim3(2, 1, 65), 0), "kernel nothing: blocks of (2,1,65)" + blocks);
  EXPECT_EQ(error(1, dim3(1, 1025, 1), 0), "kernel nothing: blocks of (1,1025,1)" + blocks);
  EXPECT_EQ(error(1, dim3(16, 1, 64), 0), "");
  EXPECT_EQ(error(1, dim3(1, 1024, 1), 0), "");
  EXPECT_EQ(error(1, dim3(5, 205, 1), 0), "kernel nothing: blocks of (5,205,1)" + blocks);
  EXPECT_EQ(error(1, 1, 101377),
            "kernel nothing: 101377 bytes of dynamic shared memory, more than the 101376 of a block");
}

TEST(EmulatorSays, which_pointer_is_none_of_the_devices) {
  DeviceArray<float> x(1);
  float here = 0;
  EXPECT_EQ(error_of([&] { launch<takes_two>(1, 1, 0, nullptr, x.data(), &here); }),
            concat("kernel takes_two: argument 2 points to ", static_cast<const void*>(&here),
                   ", which is not in device memory"));
}

TEST(EmulatorSays, which_copies_leave_their_allocation) {
  DeviceArray<char> x(256);
  std::vector<char> host(600);
  const auto error = [](const std::function<void()>& run) { return message_of<std::runtime_error>(run); };
  const void* const inside = x.data() + 200;
  EXPECT_EQ(
      error([&] { copy_to_device(x.data() + 200, host.data(), 57, nullptr); }),
      concat("copy_to_device: 57 bytes at ", inside, " exceed their allocation: it ends after 56 bytes"));
  EXPECT_EQ(error([&] { copy_to_device(x.data() + 200, host.data(), 56, nullptr); }), "");
  const void* const there = host.data();
  EXPECT_EQ(error([&] { copy_on_device(x.data(), host.data(), 1, nullptr); }),
            concat("copy_on_device: ", there, " is not in device memory"));
  EXPECT_EQ(error([&] { set_zero(host.data(), 1, nullptr); }),
            concat("set_zero: ", there, " is not in device memory"));
  const void* const device = x.data();
  EXPECT_EQ(error([&] { copy_to_host(x.data(), x.data(), 1, nullptr); }),
            concat("copy_to_host: ", device, " is in device memory, expected host memory"));
  // A copy of 0 bytes does not check its pointers.
  EXPECT_NO_THROW(copy_to_host(x.data(), host.data(), 0, nullptr));
  EXPECT_NO_THROW(copy_on_device(host.data(), host.data(), 0, nullptr));
  EXPECT_NO_THROW(set_zero(host.data(), 0, nullptr));
}

TEST(EmulatorSays, which_device_there_is_not) {
  const auto error = [](int index) { return message_of<UserError>([index] { open_device(index); }); };
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
  const auto error = [](int count) {
    return message_of<InternalError>([count] { emulation::set_threads(count); });
  };
  const int most = emulation::kMostThreads;
  EXPECT_NE(error(0).find(concat("the emulator takes 1 to ", most, " OS threads, got 0")), std::string::npos);
  EXPECT_NE(error(most + 1).find(concat("OS threads, got ", most + 1)), std::string::npos);
  EXPECT_EQ(error(most), "");
  EXPECT_EQ(error(1), "");
  emulation::set_threads(2);
}

}  // namespace
}  // namespace stagegpt::test
