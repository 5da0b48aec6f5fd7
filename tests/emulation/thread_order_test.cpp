// The order in which the threads of a block run, and how it is set.
#include <cstdlib>
#include <set>

#include "tests/emulation/emulated.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// order[i] is the i-th thread that runs: first all threads before the barrier, then all after it.
__global__ void turns(int* order, int* next) {
  order[atomicAdd(next, 1)] = static_cast<int>(threadIdx.x);
  __syncthreads();
  order[atomicAdd(next, 1)] = static_cast<int>(threadIdx.x);
}

std::vector<int> turns_of(int threads) {
  DeviceArray<int> order(2 * static_cast<std::size_t>(threads)), next(1);
  launch<turns>(1, threads, 0, nullptr, order.data(), next.data());
  return order.values();
}

TEST(EmulatedThreadOrder, forward_and_reverse) {
  emulation::set_thread_order({Order::forward, 0});
  EXPECT_EQ(turns_of(4), (std::vector<int>{0, 1, 2, 3, 3, 0, 1, 2}));  // the last to arrive goes on
  emulation::set_thread_order({Order::reverse, 0});
  EXPECT_EQ(turns_of(4), (std::vector<int>{3, 2, 1, 0, 0, 3, 2, 1}));
  emulation::set_thread_order({});
}

TEST(EmulatedThreadOrder, a_seed_repeats_its_order_and_each_launch_has_its_own) {
  auto two_launches = [](std::uint64_t seed) {
    emulation::set_thread_order({Order::random, seed});
    return std::pair(turns_of(100), turns_of(100));
  };
  const auto [first, second] = two_launches(7);
  EXPECT_EQ(two_launches(7), std::pair(first, second));
  EXPECT_NE(first, second);
  EXPECT_NE(two_launches(8).first, first);
  emulation::set_thread_order({});
  EXPECT_EQ(std::set<int>(first.begin(), first.begin() + 100).size(), 100);  // each thread has run once
  EXPECT_EQ(std::set<int>(first.begin() + 100, first.end()).size(), 100);
}

// The same for several blocks, each with its own part of `order`.
__global__ void turns_of_blocks(int* order, int* next) {
  const int i = atomicAdd(next + blockIdx.x, 1);
  order[blockIdx.x * blockDim.x + static_cast<unsigned>(i)] = static_cast<int>(threadIdx.x);
}

TEST(EmulatedThreadOrder, does_not_depend_on_the_os_threads) {
  auto run = [](int os_threads) {
    emulation::set_threads(os_threads);
    emulation::set_thread_order({Order::random, 3});
    DeviceArray<int> order(20 * 40), next(20);
    launch<turns_of_blocks>(20, 40, 0, nullptr, order.data(), next.data());
    return order.values();
  };
  const std::vector<int> order = run(1);
  EXPECT_EQ(order, run(4));
  EXPECT_NE(std::vector<int>(order.begin(), order.begin() + 40),
            std::vector<int>(order.begin() + 40, order.begin() + 80));
  emulation::set_thread_order({});
  emulation::set_threads(2);
}

// Reads the order from the environment, and exits with 0 if it is `order`.
void expect_from_environment(const char* value, ThreadOrder order) {
  setenv("STAGEGPT_EMULATOR_ORDER", value, 1);
  const ThreadOrder got = emulation::thread_order();
  std::exit(got.order == order.order && got.seed == order.seed ? 0 : 1);
}

// Opens the device as a program does at its start.
void open_device_with(const char* value) {
  setenv("STAGEGPT_EMULATOR_ORDER", value, 1);
  exit_with(refusal([] { open_device(0); }));
}

class EmulatedThreadOrderDeathTest : public testing::Test {
 protected:
  // Each test runs in a new process, which has not read the environment yet.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EmulatedThreadOrderDeathTest, is_read_from_the_environment) {
  const testing::ExitedWithCode ok(0);
  EXPECT_EXIT(expect_from_environment("forward", {Order::forward, 0}), ok, "");
  EXPECT_EXIT(expect_from_environment("reverse", {Order::reverse, 0}), ok, "");
  EXPECT_EXIT(expect_from_environment("random", {Order::random, 0}), ok, "");
  EXPECT_EXIT(expect_from_environment("random:12345678901", {Order::random, 12345678901}), ok, "");
}

TEST_F(EmulatedThreadOrderDeathTest, is_judged_when_a_device_is_opened) {
  for (const char* value : {"", "backward", "random:", "random:x", "random:1x", "random:-1", "reverse:1"}) {
    EXPECT_EXIT(open_device_with(value), testing::ExitedWithCode(2),
                "STAGEGPT_EMULATOR_ORDER: expected forward, reverse, random or random:SEED");
  }
}

}  // namespace
}  // namespace stagegpt::test
