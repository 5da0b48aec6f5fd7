// The profile of kernels with known patterns of accesses: every expected count is computed by hand, from
// sectors of 32 bytes, 32 banks of 4 bytes, and warps of 32 lanes.
#include "tests/emulation/profile/patterns.cuh"

#include <algorithm>

#include "stage2_cuda/emulation/profile/profiler.h"
#include "stage2_cuda/emulation/profile/summary.h"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;
using namespace gpu::emulation;

class EmulatorProfile : public testing::Test {
 protected:
  // All accesses of the kernel that has run, of one kind.
  AccessCounts counts(bool shared, Kind kind) {
    EXPECT_EQ(profiler_.profile().kernels.size(), 1U);
    AccessCounts sum;
    sum.shared = shared;
    for (const auto& [instruction, counts] : profiler_.profile().kernels.begin()->second.accesses) {
      if (counts.shared == shared && counts.kind == kind) sum.add(counts);
    }
    return sum;
  }
  AccessCounts global_reads() { return counts(false, Kind::read); }
  AccessCounts shared_reads() { return counts(true, Kind::read); }
  const KernelCounts& kernel() { return profiler_.profile().kernels.begin()->second; }
  std::size_t races() { return profiler_.profile().races.size(); }

  DeviceArray<float> in_{std::vector<float>(2048, 1.0F)}, out_{2048};
  DeviceArray<int> counter_{1};
  Profiler profiler_;
};

void expect_sectors(const AccessCounts& counts, Count requests, Count sectors, Count ideal) {
  EXPECT_EQ(counts.requests, requests);
  EXPECT_EQ(counts.sectors, sectors);
  EXPECT_EQ(counts.ideal_sectors, ideal);
}

void expect_wavefronts(const AccessCounts& counts, Count wavefronts, Count ideal, unsigned ways) {
  EXPECT_EQ(counts.wavefronts, wavefronts);
  EXPECT_EQ(counts.ideal_wavefronts, ideal);
  EXPECT_EQ(counts.ways, ways);
}

// 32 lanes · 4 bytes = 128 bytes = 4 sectors; 64 threads are 2 warps.
TEST_F(EmulatorProfile, coalesced) {
  run_strided(out_.data(), in_.data(), 1, 0, 64);
  expect_sectors(global_reads(), 2, 8, 8);
  expect_sectors(counts(false, Kind::write), 2, 8, 8);
  EXPECT_EQ(global_reads().lanes, 64U);
}

// 256 bytes are touched, of which half are used.
TEST_F(EmulatorProfile, stride_2) {
  run_strided(out_.data(), in_.data(), 2, 0, 32);
  expect_sectors(global_reads(), 1, 8, 4);
  EXPECT_DOUBLE_EQ(sector_efficiency(global_reads()), 0.5);
}

// Each lane has a line of its own.
TEST_F(EmulatorProfile, stride_32) {
  run_strided(out_.data(), in_.data(), 32, 0, 32);
  expect_sectors(global_reads(), 1, 32, 4);
}

TEST_F(EmulatorProfile, broadcast) {
  run_broadcast(out_.data(), in_.data());
  expect_sectors(global_reads(), 1, 1, 1);
}

// 128 bytes that begin 4 bytes into a sector reach into a fifth.
TEST_F(EmulatorProfile, misaligned) {
  run_strided(out_.data(), in_.data(), 1, 1, 32);
  expect_sectors(global_reads(), 1, 5, 4);
}

// A load of 16 bytes is one request of the warp, of 512 bytes.
TEST_F(EmulatorProfile, vectors_of_16_bytes) {
  run_vectors(out_.data(), in_.data());
  expect_sectors(global_reads(), 1, 16, 16);
  expect_sectors(counts(false, Kind::write), 1, 16, 16);
}

TEST_F(EmulatorProfile, no_conflict) {
  run_shared_stride(out_.data(), 1);
  expect_wavefronts(shared_reads(), 1, 1, 1);
}

TEST_F(EmulatorProfile, two_way_conflict) {
  run_shared_stride(out_.data(), 2);
  expect_wavefronts(shared_reads(), 2, 1, 2);
  expect_wavefronts(counts(true, Kind::write), 2, 1, 2);
}

TEST_F(EmulatorProfile, conflict_of_32_ways) {
  run_shared_stride(out_.data(), 32);
  expect_wavefronts(shared_reads(), 32, 1, 32);
}

TEST_F(EmulatorProfile, shared_broadcast) {
  run_shared_broadcast(out_.data());
  expect_wavefronts(shared_reads(), 1, 1, 1);
}

// Four phases of 8 lanes. 4 floats apart: a phase has 32 neighbouring words. 8 floats apart: lanes 0 and 4 of
// a phase share their banks.
TEST_F(EmulatorProfile, vectors_in_shared_memory) {
  run_shared_vectors(out_.data(), 4);
  expect_wavefronts(shared_reads(), 4, 4, 1);
}
TEST_F(EmulatorProfile, vectors_in_shared_memory_with_a_stride) {
  run_shared_vectors(out_.data(), 8);
  expect_wavefronts(shared_reads(), 8, 4, 2);
}

// Every fourth of 32 lanes.
TEST_F(EmulatorProfile, divergent) {
  run_divergent(out_.data(), in_.data(), 4);
  EXPECT_EQ(global_reads().requests, 1U);
  EXPECT_EQ(global_reads().lanes, 8U);
  EXPECT_EQ(global_reads().existing_lanes, 32U);
}

// The n-th of 31 rounds has the 31 - n lanes after it: 496 accesses of lanes, each round a broadcast.
TEST_F(EmulatorProfile, lanes_leave_a_loop) {
  run_loop(out_.data(), in_.data());
  expect_sectors(global_reads(), 31, 31, 31);
  EXPECT_EQ(global_reads().lanes, 496U);
}

TEST_F(EmulatorProfile, bytes_by_argument) {
  run_strided(out_.data(), in_.data(), 0, 5, 32);
  const Traffic out = kernel().arguments.at(1), in = kernel().arguments.at(2);
  EXPECT_EQ(out.requested.written, 128U);
  EXPECT_EQ(out.distinct.written, 128U);
  EXPECT_EQ(out.requested.read, 0U);
  EXPECT_EQ(in.requested.read, 128U);
  EXPECT_EQ(in.distinct.read, 4U);
}

TEST_F(EmulatorProfile, atomic_operations) {
  run_atomic(counter_.data());
  const AccessCounts atomics = counts(false, Kind::atomic);
  EXPECT_EQ(atomics.requests, 1U);
  EXPECT_EQ(atomics.lanes, 32U);
  EXPECT_EQ(races(), 0U);
  EXPECT_EQ(counter_.values()[0], 32);
}

TEST_F(EmulatorProfile, race_in_a_block) {
  run_neighbours(out_.data(), false);
  ASSERT_EQ(races(), 2U);  // most threads read before the owner writes, and the last one after thread 0 has
  const Race& race = profiler_.profile().races[0];
  EXPECT_EQ(race.argument, 1U);
  EXPECT_EQ(race.byte, 4U);
  EXPECT_EQ(race.first_thread, "block (0,0,0), thread (0,0,0)");
  EXPECT_EQ(race.second_thread, "block (0,0,0), thread (1,0,0)");
}

TEST_F(EmulatorProfile, a_barrier_orders_a_block) {
  run_neighbours(out_.data(), true);
  EXPECT_EQ(races(), 0U);
  EXPECT_EQ(kernel().calls.begin()->second.calls, 1U);
}

TEST_F(EmulatorProfile, race_between_blocks) {
  run_same_place(out_.data(), 3);
  ASSERT_EQ(races(), 1U);
  EXPECT_EQ(profiler_.profile().races[0].instances, 2U);
}

TEST_F(EmulatorProfile, a_launch_is_ordered_after_the_one_before) {
  run_strided(out_.data(), in_.data(), 1, 0, 32);
  run_strided(in_.data(), out_.data(), 0, 5, 32);  // all threads read what one thread wrote
  EXPECT_EQ(races(), 0U);
}

TEST_F(EmulatorProfile, a_fence_and_an_atomic_operation_order_blocks) {
  run_last_block(counter_.data(), in_.data(), out_.data(), 4, true);
  EXPECT_EQ(races(), 0U);
}

TEST_F(EmulatorProfile, without_a_fence_they_do_not) {
  run_last_block(counter_.data(), in_.data(), out_.data(), 4, false);
  EXPECT_EQ(races(), 1U);
}

TEST_F(EmulatorProfile, a_race_in_shared_memory_is_an_error) {
  expect_error({"words[31]", "uninitialised"}, [&] { run_shared_race(out_.data()); });
}

// The source line of patterns.cpp, from the debug information. (Of the load, g++ keeps none.)
TEST_F(EmulatorProfile, accesses_have_their_source_lines) {
  run_broadcast(out_.data(), in_.data());
  const Summary summary = summary_of(profiler_.profile());
  const auto store = std::ranges::find_if(summary.kernels.at(0).lines, [](const LineAccess& access) {
    return access.counts.kind == Kind::write;
  });
  ASSERT_EQ(store->chain.size(), 1U);
  EXPECT_EQ(store->chain[0].file, "tests/emulation/profile/patterns.cpp");
  const std::vector<std::string> text = text_of(store->chain[0].file);
  EXPECT_NE(text.at(static_cast<std::size_t>(store->chain[0].line) - 1).find("out[threadIdx.x] = in[0]"),
            std::string::npos);
}

}  // namespace
}  // namespace stagegpt::test
