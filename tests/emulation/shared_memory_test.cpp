// Accesses to shared memory that are wrong in some thread order are found in every thread order.
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

class EmulatedShared : public InEveryOrder {};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatedShared, kOrders, order_name);

__global__ void neighbour(float* out, int barrier) {
  STAGEGPT_SHARED(float, tile, 64);
  tile[threadIdx.x] = 1;
  if (barrier == 1) __syncthreads();
  if (barrier == 2) __syncwarp();
  const float factor = barrier == 3 ? __shfl_sync(0xFFFFFFFF, 1.0F, 0) : 1;
  out[threadIdx.x] = factor * tile[threadIdx.x ^ 1];
}

// If the write comes first, it is a race; if the read comes first, it is a read of uninitialised memory.
template <class Run>
void expect_race_or_uninitialised(const Run& run) {
  expect_error({"tile["}, run);
  expect_one_error({"has written with no barrier", "has read with no barrier", "is uninitialised"}, run);
}

TEST_P(EmulatedShared, a_missing_barrier_between_write_and_read) {
  DeviceArray<float> out(64);
  EXPECT_EQ(error_of([&] { launch<neighbour>(1, 64, 0, nullptr, out.data(), 1); }), "");
  EXPECT_EQ(error_of([&] { launch<neighbour>(1, 64, 0, nullptr, out.data(), 2); }), "");
  expect_race_or_uninitialised([&] { launch<neighbour>(1, 64, 0, nullptr, out.data(), 0); });
}

TEST_P(EmulatedShared, a_shuffle_is_no_barrier_for_memory) {
  DeviceArray<float> out(64);
  expect_error({"kernel neighbour", "tile[", "with no barrier in between"},
               [&] { launch<neighbour>(1, 64, 0, nullptr, out.data(), 3); });
}

__global__ void across_warps(float* out) {
  STAGEGPT_SHARED(float, tile, 64);
  tile[threadIdx.x] = 1;
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 32];
}

TEST_P(EmulatedShared, syncwarp_is_no_barrier_for_another_warp) {
  DeviceArray<float> out(64);
  expect_race_or_uninitialised([&] { launch<across_warps>(1, 64, 0, nullptr, out.data()); });
}

__global__ void half_a_warp(float* out) {
  STAGEGPT_SHARED(float, tile, 32);
  tile[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x >= 16) {
    tile[threadIdx.x] = 1;
  } else {
    __syncwarp(0xFFFF);
    out[threadIdx.x] = tile[threadIdx.x + 16];
  }
}

TEST_P(EmulatedShared, syncwarp_is_no_barrier_for_lanes_that_it_does_not_name) {
  DeviceArray<float> out(32);
  expect_error({"kernel half_a_warp", "tile[", "with no barrier in between"},
               [&] { launch<half_a_warp>(1, 32, 0, nullptr, out.data()); });
}

__global__ void write_write() {
  STAGEGPT_SHARED(int, flag, 2);
  if (threadIdx.x == 3 || threadIdx.x == 50) flag[1] = 1;
}

TEST_P(EmulatedShared, two_writers) {
  expect_error(
      {"writes flag[1], which thread (", "has written with no barrier in between", "(3,0,0)", "(50,0,0)"},
      [] { launch<write_write>(1, 64, 0, nullptr); });
}

// The thread `writer` writes a word that other threads have read. `readers` is the bit mask of the readers
// among threads 0 to 31, and `readers_above` among threads 32 to 63. If `syncwarp` is set, a barrier of the
// first warp is in between.
__global__ void write_after_read(int writer, unsigned readers, unsigned readers_above, int syncwarp,
                                 int reread) {
  STAGEGPT_SHARED(int, word, 1);
  const unsigned i = threadIdx.x;
  if (i == 0) word[0] = 0;
  __syncthreads();
  int sum = 0;
  const bool reads = ((i < 32 ? readers : readers_above) >> i % 32 & 1U) != 0;
  if (reads) sum += word[0];
  if (syncwarp != 0) __syncwarp();
  if (static_cast<int>(i) == reread) sum += word[0];
  if (static_cast<int>(i) == writer) word[0] = sum;
}

TEST_P(EmulatedShared, a_writer_after_readers) {
  auto error = [](int writer, unsigned readers, unsigned above, int syncwarp, int reread = -1) {
    return error_of(
        [&] { launch<write_after_read>(1, 64, 0, nullptr, writer, readers, above, syncwarp, reread); });
  };
  EXPECT_EQ(error(5, 1U << 5, 0, 0), "");     // only the writer itself
  EXPECT_EQ(error(5, 0xFFFFFFFF, 0, 1), "");  // the same warp, ordered by the barrier
  EXPECT_EQ(error(5, 0xFFFFFFFF, 0, 1, 5), "");
  const unsigned cases[][3] = {{1U << 7, 0, 0},            // another lane
                               {1U << 7 | 1U << 5, 0, 0},  // the writer has read too
                               {1U << 9 | 1U << 5, 0, 0},
                               {0, 1, 1},           // another warp, which a warp's barrier does not order
                               {0xFFFFFFFF, 1, 1},  // the same, and all of the writer's warp
                               {0xFFFFFFFF, 0xFFFFFFFF, 1}};
  for (const auto& [readers, above, syncwarp] : cases) {
    const std::string message = error(5, readers, above, static_cast<int>(syncwarp));
    EXPECT_NE(message.find("word[0], which thread ("), std::string::npos)
        << readers << ' ' << above << ' ' << syncwarp << ": " << message;
    EXPECT_NE(message.find("(5,0,0)"), std::string::npos) << message;
  }
  EXPECT_NE(error(5, 0, 0, 1, 8), "");  // a reader after the warp's barrier
}

__global__ void nobody_wrote(float* out) {
  STAGEGPT_SHARED(float, tile, 32);
  if (threadIdx.x != 13) tile[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

TEST_P(EmulatedShared, a_word_that_nobody_has_written) {
  DeviceArray<float> out(32);
  EXPECT_EQ(error_of([&] { launch<nobody_wrote>(1, 32, 0, nullptr, out.data()); }),
            "kernel nobody_wrote, block (0,0,0), thread (13,0,0): reads tile[13], which is uninitialised: no "
            "thread of the block has written it yet");
}

// Blocks that run on the same OS thread must not see each other's shared memory.
__global__ void written_by_the_first_block(float* out) {
  STAGEGPT_SHARED(float, tile, 32);
  if (blockIdx.x == 0) tile[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

TEST_P(EmulatedShared, what_another_block_wrote_is_not_there) {
  DeviceArray<float> out(32);
  emulation::set_threads(1);
  expect_error({"block (1,0,0)", "tile[", "uninitialised"},
               [&] { launch<written_by_the_first_block>(2, 32, 0, nullptr, out.data()); });
  emulation::set_threads(2);
}

__global__ void beyond(int index, int write) {
  STAGEGPT_SHARED(float, before, 8);
  STAGEGPT_DYNAMIC_SHARED(double, tile);
  STAGEGPT_SHARED(float, behind, 8);
  before[0] = behind[0] = 0;
  if (write == 1) tile[index] = 1;
  if (write == 0) before[0] = static_cast<float>(tile[index]);
}

TEST_P(EmulatedShared, indices_out_of_bounds) {
  auto error = [](int index, int write) {
    return error_of([&] { launch<beyond>(1, 1, 10 * sizeof(double), nullptr, index, write); });
  };
  EXPECT_EQ(error(9, 1), "");
  EXPECT_EQ(error(10, 1),
            "kernel beyond, block (0,0,0), thread (0,0,0): writes tile[10], beyond its 10 elements");
  EXPECT_EQ(error(-1, 0),
            "kernel beyond, block (0,0,0), thread (0,0,0): reads tile[-1], beyond its 10 elements");
}

template <int count>
__global__ void large_arrays() {
  STAGEGPT_SHARED(float, a, 8192);
  STAGEGPT_SHARED(float, b, count);
  a[threadIdx.x] = 1;
  b[threadIdx.x] = 1;
}

TEST_P(EmulatedShared, more_than_a_block_has) {
  EXPECT_EQ(error_of([] { launch<large_arrays<4096>>(1, 32, 0, nullptr); }), "");
  expect_error({"kernel large_arrays", "49168 bytes with b", "49152"},
               [] { launch<large_arrays<4100>>(1, 32, 0, nullptr); });
}

__global__ void misaligned(int index, float* out) {
  STAGEGPT_SHARED(float, tile, 16);
  for (int i = 0; i < 16; ++i) tile[i] = 1;
  store4(out, 0, load4(tile, index));
}

__global__ void misaligned_store(float* out, int index) { store4(out, index, {1, 2, 3, 4}); }

__global__ void misaligned_shared_store(int index, float* out) {
  STAGEGPT_SHARED(float, tile, 16);
  store4(tile, index, {1, 2, 3, 4});
  out[0] = tile[index];
}

__global__ void misaligned_halves(Bf16* out, int from, int to) { store8(out, to, load8(out, from)); }

TEST_P(EmulatedShared, four_floats_are_aligned) {
  DeviceArray<float> out(16);
  EXPECT_EQ(error_of([&] { launch<misaligned>(1, 1, 0, nullptr, 8, out.data()); }), "");
  expect_error({"kernel misaligned, block (0,0,0), thread (0,0,0)", "load4 at index 6", "misaligned"},
               [&] { launch<misaligned>(1, 1, 0, nullptr, 6, out.data()); });
  EXPECT_EQ(
      error_of([&] { launch<misaligned_store>(1, 1, 0, nullptr, out.data(), 2); }),
      "kernel misaligned_store, block (0,0,0), thread (0,0,0): store4 at index 2: misaligned address, 16 "
      "bytes are needed");
  EXPECT_EQ(error_of([&] { launch<misaligned_shared_store>(1, 1, 0, nullptr, 4, out.data()); }), "");
  expect_error({"kernel misaligned_shared_store", "store4 at index 5", "misaligned"},
               [&] { launch<misaligned_shared_store>(1, 1, 0, nullptr, 5, out.data()); });
}

__global__ void four_halves(Bf16* out, int to) { store4(out, to, Bf16x4{{0x20001, 0x40003}}); }

TEST_P(EmulatedShared, four_halves_are_aligned_to_eight_bytes) {
  DeviceArray<Bf16> out(16);
  EXPECT_EQ(error_of([&] { launch<four_halves>(1, 1, 0, nullptr, out.data(), 4); }), "");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.values()[4 + static_cast<std::size_t>(i)].bits, i + 1);
  expect_error({"kernel four_halves", "store4 at index 6", "misaligned address, 8 bytes are needed"},
               [&] { launch<four_halves>(1, 1, 0, nullptr, out.data(), 6); });
}

TEST_P(EmulatedShared, eight_halves_are_aligned) {
  DeviceArray<Bf16> out(32);
  EXPECT_EQ(error_of([&] { launch<misaligned_halves>(1, 1, 0, nullptr, out.data(), 8, 16); }), "");
  expect_error({"kernel misaligned_halves", "load8 at index 4", "misaligned"},
               [&] { launch<misaligned_halves>(1, 1, 0, nullptr, out.data(), 4, 16); });
  expect_error({"kernel misaligned_halves", "store8 at index 12", "misaligned"},
               [&] { launch<misaligned_halves>(1, 1, 0, nullptr, out.data(), 8, 12); });
}

__global__ void poisoned(float* out) {
  STAGEGPT_SHARED(float, tile, 4);
  // Reads through the raw pointer, which bypasses the emulator's checks.
  out[0] = static_cast<const float*>(tile.span().data)[2];
}

TEST_P(EmulatedShared, begins_as_not_a_number) {
  DeviceArray<float> out(1);
  launch<poisoned>(1, 1, 0, nullptr, out.data());
  EXPECT_TRUE(std::isnan(out.values()[0]));
}

}  // namespace
}  // namespace stagegpt::test
