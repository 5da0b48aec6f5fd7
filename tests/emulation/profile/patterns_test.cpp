// Ten patterns of memory accesses that everyone who writes kernels should know, with the counts of a
// profiler. Each expected count is derived by hand, from three facts: a warp has 32 lanes; global memory
// moves in sectors of 32 bytes; shared memory has 32 banks of 4 bytes, where word w is in bank w mod 32.
#include "tests/emulation/profile/patterns.cuh"

#include "tests/emulation/profile/profiled.h"

namespace stagegpt::test {
namespace {

class MemoryPatterns : public ProfileTest {};

// Lane i reads float i. 32 lanes · 4 bytes = 128 bytes = 4 sectors, and all their bytes are used. Two warps.
TEST_F(MemoryPatterns, coalesced) {
  run_strided(out_.data(), in_.data(), 1, 0, 64);
  expect_sectors(global_reads(), {.requests = 2, .lanes = 64, .touched = 2 * 4, .ideal = 2 * 4});
  expect_sectors(global_writes(), {.requests = 2, .lanes = 64, .touched = 2 * 4, .ideal = 2 * 4});
}

// Lane i reads float 2i. The lanes span 32 · 8 bytes = 256 bytes = 8 sectors. They ask for 128 bytes, which
// would fill 4: the efficiency is 1/2.
TEST_F(MemoryPatterns, stride_2) {
  run_strided(out_.data(), in_.data(), 2, 0, 32);
  expect_sectors(global_reads(), {.requests = 1, .lanes = 32, .touched = 8, .ideal = 4});
  EXPECT_DOUBLE_EQ(gpu::emulation::sector_efficiency(global_reads()), 0.5);
}

// Lane i reads float 32i. 32 · 4 bytes = 128 bytes lie between two lanes, so each has a sector of its own:
// 32 sectors, of which 4 bytes each are used.
TEST_F(MemoryPatterns, stride_32) {
  run_strided(out_.data(), in_.data(), 32, 0, 32);
  expect_sectors(global_reads(), {.requests = 1, .lanes = 32, .touched = 32, .ideal = 4});
  EXPECT_DOUBLE_EQ(gpu::emulation::sector_efficiency(global_reads()), 4.0 / 32);
}

// All lanes read float 0. One sector; 4 distinct bytes need ceil(4 / 32) = 1.
TEST_F(MemoryPatterns, broadcast) {
  run_broadcast(out_.data(), in_.data());
  expect_sectors(global_reads(), {.requests = 1, .lanes = 32, .touched = 1, .ideal = 1});
}

// Lane i reads float i + 1. The bytes 4 to 131 touch the sectors 0 to 131 / 32 = 4: 5 where 4 would do.
TEST_F(MemoryPatterns, misaligned) {
  run_strided(out_.data(), in_.data(), 1, 1, 32);
  expect_sectors(global_reads(), {.requests = 1, .lanes = 32, .touched = 5, .ideal = 4});
}

// Lane i accesses word 2i, in bank 2i mod 32: lanes i and i + 16 ask one bank for two words. Two wavefronts,
// where one would do, for the write and for the read.
TEST_F(MemoryPatterns, bank_conflict_of_2_ways) {
  run_shared_stride(out_.data(), 2);
  expect_wavefronts(shared_writes(), {.requests = 1, .count = 2, .ideal = 1, .ways = 2});
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 2, .ideal = 1, .ways = 2});
}

// Lane i accesses word 32i, in bank 0: 32 words of one bank are 32 wavefronts.
TEST_F(MemoryPatterns, bank_conflict_of_32_ways) {
  run_shared_stride(out_.data(), 32);
  expect_wavefronts(shared_writes(), {.requests = 1, .count = 32, .ideal = 1, .ways = 32});
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 32, .ideal = 1, .ways = 32});
}

// Lanes 0, 4, …, 28 read: 8 of 32. They are 16 bytes apart, so two share a sector: 4 sectors. Their 8 · 4
// bytes would fill one.
TEST_F(MemoryPatterns, divergent) {
  run_divergent(out_.data(), in_.data(), 4);
  expect_sectors(global_reads(), {.requests = 1, .lanes = 8, .touched = 4, .ideal = 1});
  EXPECT_DOUBLE_EQ(gpu::emulation::active_lanes(global_reads()), 8.0 / 32);
}

// Thread i of 64 writes element i and reads its neighbour's, i + 1 mod 64, with no barrier. They run in turn
// here. Thread i reads element i + 1 before thread i + 1 writes it: 63 pairs of a read and a write. Thread 63
// reads element 0, which thread 0 has written: one pair of a write and a read.
TEST_F(MemoryPatterns, race_in_global_memory) {
  run_neighbours(out_.data(), Meeting::none);
  ASSERT_EQ(races().size(), 2U);
  EXPECT_EQ(races()[0].first_kind, Kind::read);
  EXPECT_EQ(races()[0].second_kind, Kind::write);
  EXPECT_EQ(races()[0].instances, 63U);
  EXPECT_EQ(races()[0].first_thread, "block (0,0,0), thread (0,0,0)");
  EXPECT_EQ(races()[0].second_thread, "block (0,0,0), thread (1,0,0)");
  EXPECT_EQ(races()[0].argument, 1U);
  EXPECT_EQ(races()[0].byte, 4U);  // of element 1
  EXPECT_EQ(races()[1].first_kind, Kind::write);
  EXPECT_EQ(races()[1].second_kind, Kind::read);
  EXPECT_EQ(races()[1].instances, 1U);
  EXPECT_EQ(races()[1].first_thread, "block (0,0,0), thread (0,0,0)");
  EXPECT_EQ(races()[1].second_thread, "block (0,0,0), thread (63,0,0)");
  EXPECT_EQ(races()[1].byte, 0U);
}

// All threads read their neighbour's word and then write their own, with no barrier between the two.
// Thread 31, the last to arrive at the barrier before, runs on first and reads word 0; then thread 0 writes
// it.
TEST_F(MemoryPatterns, race_in_shared_memory) {
  expect_error(
      {"kernel shared_race, block (0,0,0), thread (0,0,0): writes words[0], which thread (31,0,0) has "
       "read with no barrier in between"},
      [&] { run_shared_race(out_.data()); });
}

}  // namespace
}  // namespace stagegpt::test
