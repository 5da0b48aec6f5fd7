// Launches: validation, error messages, and that a launch works after a failed launch.
#include <atomic>
#include <stdexcept>

#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

__global__ void nothing() {}

std::string error_of_launch(dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
  return error_of([&] { launch<nothing>(grid, block, shared_bytes, nullptr); });
}

TEST(EmulatedLaunch, extents_that_are_possible) {
  EXPECT_EQ(error_of_launch(1, 1024), "");
  EXPECT_EQ(error_of_launch(dim3(1, 65535), dim3(1, 1, 64)), "");
  EXPECT_EQ(error_of_launch(dim3(1, 1, 65535), 1), "");
  EXPECT_EQ(error_of_launch(1, dim3(16, 1, 64)), "");
  EXPECT_EQ(error_of_launch(1, dim3(1, 1024)), "");
  EXPECT_EQ(error_of_launch(1, 1, 101376), "");
}

TEST(EmulatedLaunch, extents_that_are_not) {
  const auto expect_says = [](const std::string& error, const char* what, dim3 extents, const char* why) {
    const emulation::Index index{extents.x, extents.y, extents.z};
    EXPECT_EQ(error, concat("kernel nothing: ", what, " of ", emulation::to_string(index), why));
  };
  for (const dim3& grid : {dim3(0, 1, 1), dim3(2, 0, 3), dim3(1, 1, 0)}) {
    expect_says(error_of_launch(grid, 1), "a grid", grid, " blocks");
  }
  for (const dim3& grid : {dim3(2, 65536, 3), dim3(1, 1, 65536), dim3(0x80000000U, 1, 1)}) {
    expect_says(error_of_launch(grid, 1), "a grid", grid,
                " blocks, expected at most (2147483647,65535,65535)");
  }
  for (const dim3& block : {dim3(0, 1, 1), dim3(1, 0, 1), dim3(4, 5, 0)}) {
    expect_says(error_of_launch(1, block), "blocks", block, " threads");
  }
  for (const dim3& block :
       {dim3(1025), dim3(1, 1025), dim3(32, 33), dim3(5, 205), dim3(2, 1, 65), dim3(65536, 65536)}) {
    expect_says(error_of_launch(1, block), "blocks", block,
                " threads, expected at most 1024, and at most 64 along z");
  }
  EXPECT_EQ(error_of_launch(1, 1, 101377),
            "kernel nothing: 101377 bytes of dynamic shared memory, more than the 101376 of a block");
}

template <int kFactor, class T>
__global__ void fill(T* out, std::int64_t n, double value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (out != nullptr && i < n) out[i] = static_cast<T>(kFactor * value);
}

TEST(EmulatedLaunch, arguments_become_the_kernels_types) {
  DeviceArray<float> out(7);
  launch<fill<2, float>>(1, 32, 0, nullptr, out.data() + 2, 4, 3);  // two arguments of type int
  EXPECT_EQ(out.values(), (std::vector<float>{0, 0, 6, 6, 6, 6, 0}));
  launch<fill<2, float>>(1, 32, 0, nullptr, nullptr, 4, 3.0F);
}

__global__ void takes_two(float*, const float*) {}

TEST(EmulatedLaunch, pointers_lead_to_device_memory) {
  const DeviceArray<float> x(1);
  const float here = 0;
  auto* freed = static_cast<float*>(allocate(16));
  deallocate(freed);
  for (const float* pointer : {&here, static_cast<const float*>(freed)}) {
    EXPECT_EQ(error_of([&] { launch<takes_two>(1, 1, 0, nullptr, x.data(), pointer); }),
              concat("kernel takes_two: argument 2 points to ", static_cast<const void*>(pointer),
                     ", which is not in device memory"));
  }
}

TEST(EmulatedLaunch, a_large_grid) {
  constexpr std::int64_t kThreads = std::int64_t{1} << 20;
  DeviceArray<float> out(kThreads);
  launch<fill<1, float>>(kThreads / 64, 64, 0, nullptr, out.data(), kThreads, 5);
  for (const float value : out.values()) ASSERT_EQ(value, 5);
}

__global__ void throws(unsigned block, unsigned thread, int* run) {
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(run, 1);
  if (blockIdx.x == block && threadIdx.x == thread) throw std::logic_error("a bug");
  __syncthreads();
}

TEST(EmulatedLaunch, an_error_in_one_of_many_blocks_stops_the_others) {
  DeviceArray<int> run(1);
  EXPECT_EQ(error_of([&] { launch<throws>(100'000, 64, 0, nullptr, 300, 40, run.data()); }),
            "kernel throws, block (300,0,0), thread (40,0,0): a bug");
  EXPECT_GT(run.values()[0], 1);
  EXPECT_LT(run.values()[0], 50'000);
}

std::atomic<int> alive = 0;
struct Alive {
  Alive() { ++alive; }
  ~Alive() { --alive; }
};

__global__ void leaves_something(int fail) {
  const Alive in_every_thread;
  __syncwarp();
  if (fail != 0 && threadIdx.x == 63) throw std::runtime_error("now");
  __syncthreads();
}

TEST(EmulatedLaunch, waiting_threads_are_unwound_and_the_next_launch_works) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_NE(error_of([] { launch<leaves_something>(8, 64, 0, nullptr, 1); }), "");
    EXPECT_EQ(alive, 0);
    EXPECT_EQ(error_of([] { launch<leaves_something>(8, 64, 0, nullptr, 0); }), "");
    EXPECT_EQ(alive, 0);
  }
}

__global__ void launches() { launch<nothing>(1, 1, 0, nullptr); }
__global__ void throws_a_number() { throw 42; }

TEST(EmulatedLaunch, other_things_that_kernels_must_not_do) {
  expect_error({"kernel launches, block (0,0,0), thread (0,0,0): launches kernel nothing"},
               [] { launch<launches>(1, 1, 0, nullptr); });
  EXPECT_EQ(error_of([] { launch<throws_a_number>(1, 1, 0, nullptr); }),
            "kernel throws_a_number, block (0,0,0), thread (0,0,0): an exception of an unknown type");
}

TEST(EmulatedLaunch, names_of_kernels) {
  EXPECT_EQ(emulation::kernel_name("const char* f() [with auto kernel = a::b::fill]"), "fill");
  EXPECT_EQ(emulation::kernel_name("const char* f() [with auto kernel = {anonymous}::fill]"), "fill");
  EXPECT_EQ(emulation::kernel_name("f() [with auto kernel = a::fill<4, a::b::Half>]"), "fill<4, a::b::Half>");
}

TEST(EmulatedLaunch, as_many_os_threads_as_asked_for) {
  DeviceArray<float> out(1000);
  for (const int threads : {1, 3, 8}) {
    emulation::set_threads(threads);
    EXPECT_EQ(open_device(0).multiprocessors, threads);
    launch<fill<1, float>>(100, 10, 0, nullptr, out.data(), 1000, threads);
    EXPECT_EQ(out.values(), std::vector<float>(1000, static_cast<float>(threads)));
  }
  emulation::set_threads(2);
}

}  // namespace
}  // namespace stagegpt::test
