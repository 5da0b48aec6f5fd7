// Instructions of tensor cores and asynchronous copies, in every thread order.
#include <bit>
#include <cmath>

#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

class EmulatedTensorCores : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedTensorCores, kOrders, order_name);

class EmulatedCopies : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedCopies, kOrders, order_name);

Bf16 bf16(float value) { return {bf16_of_float(value)}; }

Bf16Pair pair(Bf16 first, Bf16 second) { return first.bits | Bf16Pair{second.bits} << 16; }

// c (16,8) += a (16,16) · b (16,8), all row-major, by the layout of the PTX ISA: lane l has, of A, elements 0
// to 7 at row l/4 + 8·[element is 2, 3, 6 or 7] and column 2·(l % 4) + element % 2 + 8·[element >= 4], and so
// on.
__global__ void product(float* c, const Bf16* a, const Bf16* b) {
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  FragmentA left;
  for (unsigned e = 0; e < 8; e += 2) {
    const unsigned row = g + (e % 4 == 2 ? 8 : 0), column = 2 * t + (e >= 4 ? 8 : 0);
    left.pair[e / 2] = pair(a[row * 16 + column], a[row * 16 + column + 1]);
  }
  FragmentB right;
  for (unsigned e = 0; e < 4; e += 2) {
    const unsigned row = 2 * t + (e >= 2 ? 8 : 0);
    right.pair[e / 2] = pair(b[row * 8 + g], b[(row + 1) * 8 + g]);
  }
  FragmentC sums;
  for (unsigned e = 0; e < 4; ++e) sums.v[e] = c[(g + (e >= 2 ? 8 : 0)) * 8 + 2 * t + e % 2];
  mma_m16n8k16(sums, left, right);
  for (unsigned e = 0; e < 4; ++e) c[(g + (e >= 2 ? 8 : 0)) * 8 + 2 * t + e % 2] = sums.v[e];
}

TEST_P(EmulatedTensorCores, need_their_capability) {
  const EmulatedDevice older(75);
  DeviceArray<Bf16> left(small_numbers(16 * 16, 5)), right(small_numbers(16 * 8, 3));
  DeviceArray<float> sums(std::vector<float>(16 * 8));
  expect_error({"kernel product", "needs compute capability 8.0, and the emulated device has 7.5"},
               [&] { launch<product>(1, 32, 0, nullptr, sums.data(), left.data(), right.data()); });
}

TEST_P(EmulatedTensorCores, multiply_and_add) {
  const std::vector<Bf16> a = small_numbers(16 * 16, 5), b = small_numbers(16 * 8, 3);
  std::vector<float> c(16 * 8);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i);
  DeviceArray<Bf16> left(a), right(b);
  DeviceArray<float> sums(c);
  launch<product>(1, 32, 0, nullptr, sums.data(), left.data(), right.data());
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float want = c[row * 8 + column];
      for (std::size_t k = 0; k < 16; ++k) want += as_float(a[row * 16 + k]) * as_float(b[k * 8 + column]);
      EXPECT_EQ(sums.values()[row * 8 + column], want) << row << ',' << column;
    }
  }
}

TEST_P(EmulatedTensorCores, infinity_meets_only_its_row) {
  std::vector<Bf16> a(16 * 16, bf16(1));
  a[3 * 16] = bf16(INFINITY);
  DeviceArray<Bf16> left(a), right(std::vector<Bf16>(16 * 8, bf16(1)));
  DeviceArray<float> sums(16 * 8);
  launch<product>(1, 32, 0, nullptr, sums.data(), left.data(), right.data());
  for (std::size_t i = 0; i < 16 * 8; ++i) EXPECT_EQ(sums.values()[i], i / 8 == 3 ? INFINITY : 16) << i;
}

// Lane l gets the pairs at row l/4, columns 2·(l % 4) and + 1, of each matrix or of its transpose. The four
// matrices are rows 0 to 31 of `in`, of eight numbers each; lanes of `order` reversed give the rows of a
// matrix upside down.
template <bool transposed>
__global__ void matrices(unsigned* out, const Bf16* in, int reversed) {
  STAGEGPT_SHARED(Bf16, memory, 32 * 8);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 8; ++i) memory[lane * 8 + i] = in[lane * 8 + i];
  __syncwarp();
  const int row = reversed != 0 ? lane / 8 * 8 + 7 - lane % 8 : lane;
  FragmentA f;
  if constexpr (transposed) {
    f = ldmatrix_x4_trans(memory, row * 8);
  } else {
    f = ldmatrix_x4(memory, row * 8);
  }
  for (int m = 0; m < 4; ++m) out[4 * lane + m] = f.pair[m];
}

template <bool transposed>
void expect_matrices(bool reversed) {
  std::vector<Bf16> in;
  for (unsigned i = 0; i < 32 * 8; ++i) in.push_back({static_cast<std::uint16_t>(i)});
  DeviceArray<Bf16> device(in);
  DeviceArray<unsigned> out(128);
  launch<matrices<transposed>>(1, 32, 0, nullptr, out.data(), device.data(), reversed ? 1 : 0);
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    if (transposed) std::swap(row, column);
    return 64 * matrix + 8 * (reversed ? 7 - row : row) + column;
  };
  for (unsigned i = 0; i < 128; ++i) {
    const unsigned lane = i / 4, row = lane / 4, column = 2 * (lane % 4);
    EXPECT_EQ(out.values()[i], element(i % 4, row, column) | element(i % 4, row, column + 1) << 16) << i;
  }
}

TEST_P(EmulatedTensorCores, load_matrices) {
  expect_matrices<false>(false);
  expect_matrices<false>(true);
}

TEST_P(EmulatedTensorCores, load_transposed_matrices) {
  expect_matrices<true>(false);
  expect_matrices<true>(true);
}

// c (16,8) += a (16,8) · bᵀ, b (8,8), in TF32.
__global__ void tf32_product(float* c, const float* a, const float* b) {
  STAGEGPT_SHARED(float, rows, 24 * 8);
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 24 * 8; i += 32) rows[i] = i < 16 * 8 ? a[i] : b[i - 16 * 8];
  __syncwarp();
  FragmentA left = ldmatrix_x4(rows, lane % 16 * 8 + lane / 16 * 4);
  const FragmentA right = ldmatrix_x4(rows, (16 + lane % 8) * 8 + lane / 8 % 2 * 4);
  for (unsigned& word : left.pair) word = rounded_tf32(__uint_as_float(word));
  FragmentC sums = {};
  mma_m16n8k8(sums, left, {right.pair[0], right.pair[1]});
  for (int e = 0; e < 4; ++e) c[(g + e / 2 * 8) * 8 + 2 * t + e % 2] += sums.v[e];
}

TEST_P(EmulatedTensorCores, multiply_and_add_in_tf32) {
  std::vector<float> a(16 * 8), b(8 * 8);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 5 % 17) - 8;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 3 % 17) - 8;
  a[8] = 1 + 0x1p-11F;   // rounded to 1 + 2^-10
  a[9] = -1 - 0x1p-12F;  // rounded to -1
  b[0] = 1 + 0x1p-11F;   // not rounded: its lower bits are ignored
  a[16] = INFINITY;
  // The NaN that a GPU's arithmetic gives. A carry would make -0 of it.
  a[24] = std::bit_cast<float>(0x7FFFFFFF);
  DeviceArray<float> left(a), right(b), sums(16 * 8);
  launch<tf32_product>(1, 32, 0, nullptr, sums.data(), left.data(), right.data());
  a[8] = 1 + 0x1p-10F, a[9] = -1, b[0] = 1;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      float want = 0;
      for (std::size_t k = 0; k < 8; ++k) want += a[row * 8 + k] * b[column * 8 + k];
      const float got = sums.values()[row * 8 + column];
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
          << row << ',' << column << ": " << got << ", expected " << want;
    }
  }
}

__global__ void unaligned(int begin) {
  STAGEGPT_SHARED(Bf16, memory, 512);
  for (int i = 0; i < 16; ++i) memory[16 * threadIdx.x + i] = Bf16{};
  __syncwarp();
  ldmatrix_x4(memory, begin + 8 * static_cast<int>(threadIdx.x));
}

TEST_P(EmulatedTensorCores, rows_of_matrices_are_aligned) {
  EXPECT_EQ(error_of([&] { launch<unaligned>(1, 32, 0, nullptr, 8); }), "");
  expect_error({"kernel unaligned", "ldmatrix_x4 at index", "16 bytes are needed"},
               [&] { launch<unaligned>(1, 32, 0, nullptr, 4); });
}

TEST_P(EmulatedTensorCores, loading_matrices_reads_memory) {
  // Row 31 begins at element 496 and ends at 512: one further is beyond the array.
  expect_error({"reads memory[512], beyond its 512 elements"},
               [&] { launch<unaligned>(1, 32, 0, nullptr, 264); });
}

__global__ void some_lanes(float* c, int lanes) {
  FragmentC sums = {};
  if (static_cast<int>(threadIdx.x) < lanes) mma_m16n8k16(sums, {}, {});
  c[threadIdx.x] = sums.v[0];
}

TEST_P(EmulatedTensorCores, need_all_lanes_of_a_warp) {
  DeviceArray<float> c(32);
  EXPECT_EQ(error_of([&] { launch<some_lanes>(1, 32, 0, nullptr, c.data(), 32); }), "");
  expect_error({"kernel some_lanes", "has exited", "waits in mma_m16n8k16", "mask 0xffffffff"},
               [&] { launch<some_lanes>(1, 32, 0, nullptr, c.data(), 31); });
  expect_error({"kernel some_lanes", "waits in mma_m16n8k16", "the block has no such thread"},
               [&] { launch<some_lanes>(1, 16, 0, nullptr, c.data(), 16); });
}

__global__ void pairs(unsigned* out) { out[threadIdx.x] = rounded_pair(1.00390625F, -2); }

TEST_P(EmulatedTensorCores, pairs_are_rounded_and_the_first_is_in_the_lower_half) {
  DeviceArray<unsigned> out(1);
  launch<pairs>(1, 1, 0, nullptr, out.data());
  EXPECT_EQ(out.values()[0], 0xC0003F80);  // 1 + 2^-8 lies between 1 and 1 + 2^-7: to even
}

// Copies 4·64 floats to shared memory; each thread then reads what another has copied.
__global__ void copy(float* out, const float* in, int missing) {
  STAGEGPT_SHARED(float, tile, 4 * 64);
  const int i = static_cast<int>(threadIdx.x);
  cp_async_16(tile, 4 * i, in + 4 * i, i % 2 == 0);
  if (missing != 1) cp_async_wait_all();
  if (missing != 2) __syncthreads();
  for (int j = 0; j < 4; ++j) out[4 * i + j] = tile[(4 * i + 100) % 256 + j];
  if (missing == 1) cp_async_wait_all();
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_P(EmulatedCopies, arrive_or_write_zeros) {
  DeviceArray<float> in(counted(256)), out(256);
  launch<copy>(1, 64, 0, nullptr, out.data(), in.data(), 0);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t from = (i + 100) % 256;
    EXPECT_EQ(out.values()[i], from / 4 % 2 == 0 ? static_cast<float>(from) : 0) << i;
  }
}

TEST_P(EmulatedCopies, are_under_way_until_they_are_waited_for) {
  DeviceArray<float> in(counted(256)), out(256);
  expect_error({"kernel copy", "reads tile[", "to which an asynchronous copy is under way"},
               [&] { launch<copy>(1, 64, 0, nullptr, out.data(), in.data(), 1); });
  // The threads of the next launch have none.
  DeviceArray<unsigned> others(64);
  EXPECT_EQ(error_of([&] { launch<pairs>(1, 64, 0, nullptr, others.data()); }), "");
}

TEST_P(EmulatedCopies, are_visible_to_others_after_a_barrier) {
  DeviceArray<float> in(counted(256)), out(256);
  expect_one_error({"with no barrier in between", "is uninitialised", "copy is under way"},
                   [&] { launch<copy>(1, 64, 0, nullptr, out.data(), in.data(), 2); });
}

// Waits for its copy after the barrier, so that nothing orders the copy and the other thread's read.
__global__ void wait_too_late(float* out, const float* in) {
  STAGEGPT_SHARED(float, tile, 4);
  if (threadIdx.x == 0) cp_async_16(tile, 0, in, true);
  __syncthreads();
  if (threadIdx.x == 0) cp_async_wait_all();
  if (threadIdx.x == 32) out[0] = tile[0];
}

TEST_P(EmulatedCopies, that_are_waited_for_after_the_barrier_are_a_race) {
  DeviceArray<float> in(counted(4)), out(1);
  expect_one_error({"with no barrier in between", "copy is under way"},
                   [&] { launch<wait_too_late>(1, 64, 0, nullptr, out.data(), in.data()); });
}

__global__ void overwrite(const float* in, int barrier) {
  STAGEGPT_SHARED(float, tile, 4 * 32);
  const int i = static_cast<int>(threadIdx.x);
  for (int j = 0; j < 4; ++j) tile[4 * (31 - i) + j] = 0;
  if (barrier != 0) __syncthreads();
  cp_async_16(tile, 4 * i, in + 4 * i, true);
  cp_async_wait_all();
}

TEST_P(EmulatedCopies, write_their_elements) {
  DeviceArray<float> in(counted(128));
  EXPECT_EQ(error_of([&] { launch<overwrite>(1, 32, 0, nullptr, in.data(), 1); }), "");
  expect_error({"kernel overwrite", "writes tile["},
               [&] { launch<overwrite>(1, 32, 0, nullptr, in.data(), 0); });
}

__global__ void forget(const float* in) {
  STAGEGPT_SHARED(float, tile, 4);
  cp_async_16(tile, 0, in, true);
}

TEST_P(EmulatedCopies, end_before_their_thread) {
  DeviceArray<float> in(4);
  expect_error({"kernel forget", "exits before cp_async_wait_all"},
               [&] { launch<forget>(1, 1, 0, nullptr, in.data()); });
}

__global__ void shifted(const float* in, int to, int from) {
  STAGEGPT_SHARED(float, tile, 8);
  cp_async_16(tile, to, in + from, true);
  cp_async_wait_all();
}

TEST_P(EmulatedCopies, are_aligned_on_both_sides) {
  DeviceArray<float> in(8);
  EXPECT_EQ(error_of([&] { launch<shifted>(1, 1, 0, nullptr, in.data(), 4, 4); }), "");
  expect_error({"cp_async_16 at index 2", "16 bytes are needed"},
               [&] { launch<shifted>(1, 1, 0, nullptr, in.data(), 2, 4); });
  expect_error({"cp_async_16", "16 bytes are needed"},
               [&] { launch<shifted>(1, 1, 0, nullptr, in.data(), 4, 1); });
}

}  // namespace
}  // namespace stagegpt::test
