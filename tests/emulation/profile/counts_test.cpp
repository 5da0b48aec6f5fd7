// What the profile counts beyond the ten patterns of patterns_test.cpp: vectors, loops, bytes, and what
// orders accesses. Every expected count is computed by hand.
#include <algorithm>
#include <map>

#include "tests/emulation/profile/patterns.cuh"
#include "tests/emulation/profile/profiled.h"

namespace stagegpt::test {
namespace {

using namespace gpu::emulation;

class EmulatorProfile : public ProfileTest {};

// A load of 16 bytes is one request of the warp, of 512 bytes.
TEST_F(EmulatorProfile, vectors_of_16_bytes) {
  run_vectors(out_.data(), in_.data());
  expect_sectors(global_reads(), {.requests = 1, .lanes = 32, .touched = 16, .ideal = 16});
  expect_sectors(global_writes(), {.requests = 1, .lanes = 32, .touched = 16, .ideal = 16});
}

TEST_F(EmulatorProfile, no_bank_conflict) {
  run_shared_stride(out_.data(), 1);
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 1, .ideal = 1, .ways = 1});
}

// All lanes get one word in one wavefront.
TEST_F(EmulatorProfile, broadcast_in_shared_memory) {
  run_shared_broadcast(out_.data());
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 1, .ideal = 1, .ways = 1});
}

// Four phases of 8 lanes. 4 floats apart: a phase has 32 neighbouring words. 8 floats apart: lanes 0 and 4 of
// a phase share their banks.
TEST_F(EmulatorProfile, vectors_in_shared_memory) {
  run_shared_vectors(out_.data(), 4);
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 4, .ideal = 4, .ways = 1});
}
TEST_F(EmulatorProfile, vectors_in_shared_memory_with_a_stride) {
  run_shared_vectors(out_.data(), 8);
  expect_wavefronts(shared_reads(), {.requests = 1, .count = 8, .ideal = 4, .ways = 2});
}

// The n-th of 31 rounds has the 32 - n lanes after it: 496 accesses of lanes, each round a broadcast.
TEST_F(EmulatorProfile, lanes_leave_a_loop) {
  run_loop(out_.data(), in_.data());
  expect_sectors(global_reads(), {.requests = 31, .lanes = 496, .touched = 31, .ideal = 31});
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

// A copy reads 37 rows of 96 bytes, each of three sectors, and zeros beyond them; another one 256 bytes. Each
// of four warps starts four products, and waits once.
TEST_F(EmulatorProfile, copies_and_products_of_a_warpgroup) {
  const EmulatedDevice device(90);
  DeviceArray<Bf16> rows(std::vector<Bf16>(std::size_t{37} * 48, Bf16{0x3F80}));  // 1
  run_warpgroup(out_.data(), in_.data(), gpu::make_tensor_map(rows.data(), {48, 1, 37, 1}));
  EXPECT_EQ(out_.values()[0], 48 + 1);
  expect_sectors(global_reads(), {.requests = 38, .lanes = 38, .touched = 37 * 3 + 8, .ideal = 37 * 3 + 8});
  EXPECT_EQ(kernel().arguments.at(2).distinct.read, 256U);
  EXPECT_EQ(kernel().arguments.at(3).requested.read, 37U * 96);
  EXPECT_EQ(kernel().arguments.at(3).distinct.read, 37U * 96);
  std::map<std::string, std::uint64_t> calls;
  for (const auto& [key, counts] : kernel().calls) {
    calls[key.first] += counts.calls;
    EXPECT_EQ(key.second.substr(0, 13), "patterns.cpp:") << key.first;
  }
  const std::map<std::string, std::uint64_t> expected = {
      {"__syncthreads", 1}, {"tma_load", 1}, {"bulk_load", 1}, {"wgmma", 16}, {"wgmma_wait", 4}};
  EXPECT_EQ(calls, expected);
}

// One line copies rows of 96 bytes, and at another launch rows of 128.
TEST_F(EmulatorProfile, copies_of_different_widths_are_told_apart) {
  const EmulatedDevice device(90);
  for (const std::int64_t columns : {48, 64}) {
    const DeviceArray<Bf16> rows(std::vector<Bf16>(static_cast<std::size_t>(37 * columns)));
    run_warpgroup(out_.data(), in_.data(), gpu::make_tensor_map(rows.data(), {columns, 1, 37, 1}));
  }
  std::map<unsigned, std::uint64_t> requests;  // by bytes
  const Summary summary = summary_of(profiler_.profile());
  for (const LineAccess& line : summary.kernels.at(0).lines) {
    if (!line.counts.shared && line.counts.kind == Kind::read)
      requests[line.counts.bytes] += line.counts.requests;
  }
  const std::map<unsigned, std::uint64_t> expected = {{96, 37}, {128, 37}, {256, 2}};
  EXPECT_EQ(requests, expected);
}

TEST_F(EmulatorProfile, atomic_operations) {
  run_atomic(counter_.data());
  const AccessCounts atomics = counts(false, Kind::atomic);
  EXPECT_EQ(atomics.requests, 1U);
  EXPECT_EQ(atomics.lanes, 32U);
  EXPECT_EQ(races().size(), 0U);
  EXPECT_EQ(counter_.values()[0], 32);
}

TEST_F(EmulatorProfile, a_barrier_orders_a_block) {
  run_neighbours(out_.data(), Meeting::syncthreads);
  EXPECT_EQ(races().size(), 0U);
  EXPECT_EQ(kernel().calls.begin()->second.calls, 1U);
}

TEST_F(EmulatorProfile, a_named_barrier_orders_its_warps) {
  run_neighbours(out_.data(), Meeting::named_barrier);
  EXPECT_EQ(races().size(), 0U);
}

TEST_F(EmulatorProfile, race_between_blocks) {
  run_same_place(out_.data(), 3);
  ASSERT_EQ(races().size(), 1U);
  EXPECT_EQ(races()[0].instances, 2U);
}

TEST_F(EmulatorProfile, a_launch_is_ordered_after_the_one_before) {
  run_strided(out_.data(), in_.data(), 1, 0, 32);
  run_strided(in_.data(), out_.data(), 0, 5, 32);  // all threads read what one thread wrote
  EXPECT_EQ(races().size(), 0U);
}

TEST_F(EmulatorProfile, a_fence_and_an_atomic_operation_order_blocks) {
  run_last_block(counter_.data(), in_.data(), out_.data(), 4, true);
  EXPECT_EQ(races().size(), 0U);
}

TEST_F(EmulatorProfile, without_a_fence_they_do_not) {
  run_last_block(counter_.data(), in_.data(), out_.data(), 4, false);
  EXPECT_EQ(races().size(), 1U);
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

// Also of vectors in shared memory, whose accesses the emulator makes in a function of its own.
TEST_F(EmulatorProfile, vectors_in_shared_memory_have_their_source_lines) {
  run_shared_vectors(out_.data(), 4);
  const Summary summary = summary_of(profiler_.profile());
  int shared = 0;
  for (const LineAccess& access : summary.kernels.at(0).lines) {
    if (!access.counts.shared) continue;
    ++shared;
    ASSERT_FALSE(access.chain.empty());
    EXPECT_EQ(access.chain[0].file, "tests/emulation/profile/patterns.cpp");
  }
  EXPECT_EQ(shared, 2);
}

}  // namespace
}  // namespace stagegpt::test
