// Sums over a warp and over a block (reduce.cuh), alone, on the emulator in every order of threads.
#include "stage2_cuda/kernels/reduce.cuh"
#include "tests/emulation/emulated.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

class Reductions : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, Reductions, kOrders, order_name);

template <int kLanes>
static __global__ void warp_sums_kernel(float* sums, const float* values) {
  sums[threadIdx.x] = warp_sum<kLanes>(values[threadIdx.x]);
}

template <int kSize>
static __global__ void block_sums_kernel(float* sums, const float* values) {
  const std::int64_t i = thread_index();
  sums[i] = block_sum<kSize>(values[i]);
}

// What each element of a group of `size` neighbours is to become.
std::vector<float> sums_of_groups(const std::vector<float>& values, std::size_t size) {
  std::vector<float> sums(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i / size * size; j < (i / size + 1) * size; ++j) sums[i] += values[j];
  }
  return sums;
}

// Powers of two: each sum is exact, and says which values it has, and how often.
std::vector<float> powers_of_two(std::size_t n, std::size_t period) {
  std::vector<float> powers(n);
  for (std::size_t i = 0; i < n; ++i) powers[i] = std::ldexp(1.0F, static_cast<int>(i % period));
  return powers;
}

template <int kLanes>
void expect_warp_sums() {
  const std::vector<float> powers = powers_of_two(64, 16);  // two warps
  const DeviceArray<float> values(powers), sums(powers.size());
  launch<warp_sums_kernel<kLanes>>(dim3(1), dim3(64), 0, nullptr, sums.data(), values.data());
  EXPECT_EQ(sums.values(), sums_of_groups(powers, kLanes)) << "groups of " << kLanes << " lanes";
}

TEST_P(Reductions, warp_sum_is_the_sum_of_a_group_in_every_lane) {
  expect_warp_sums<32>();
  expect_warp_sums<16>();
  expect_warp_sums<4>();
  expect_warp_sums<1>();
}

TEST_P(Reductions, warp_sum_has_the_same_bits_in_every_lane) {
  const Values random = random_values(1, 0, 32);
  const DeviceArray<float> values(std::vector<float>(random.begin(), random.end())), sums(32);
  launch<warp_sums_kernel<32>>(dim3(1), dim3(32), 0, nullptr, sums.data(), values.data());
  for (const float sum : sums.values()) EXPECT_EQ(sum, sums.values()[0]);
}

template <int kSize>
void expect_block_sums() {
  const std::vector<float> numbers = [] {  // whole numbers, with sums that f32 holds
    std::vector<float> all(3 * kSize);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i * 37 % 101);
    return all;
  }();
  const DeviceArray<float> values(numbers), sums(numbers.size());
  launch<block_sums_kernel<kSize>>(dim3(3), dim3(kSize), 0, nullptr, sums.data(), values.data());
  EXPECT_EQ(sums.values(), sums_of_groups(numbers, kSize)) << "blocks of " << kSize << " threads";
}

TEST_P(Reductions, block_sum_is_the_sum_of_a_block_in_every_thread) {
  expect_block_sums<32>();
  expect_block_sums<96>();
  expect_block_sums<256>();
  expect_block_sums<1024>();
}

}  // namespace
}  // namespace stagegpt::test
