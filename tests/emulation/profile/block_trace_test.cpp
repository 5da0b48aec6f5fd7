// The events of one block, which block.html steps through.
#include "stage2_cuda/emulation/profile/block_trace.h"

#include <bit>
#include <map>

#include "common/base/json.h"
#include "stage2_cuda/emulation/profile/writers.h"
#include "tests/emulation/profile/patterns.cuh"
#include "tests/emulation/profile/profiled.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using namespace gpu::emulation;

class BlockTraceTest : public ProfileTest {
 protected:
  void trace(const std::string& choice, std::size_t most_events = BlockTrace::kMostEvents) {
    profiler_.trace(BlockTrace(parsed_block_choice(choice), most_events));
  }
  std::vector<BlockEvent> events() { return profiler_.block_trace()->first_events(); }
  // "column warp what" of each event.
  std::vector<std::string> listed() {
    std::vector<std::string> lines;
    for (const BlockEvent& event : events()) {
      const bool access = event.type == BlockEvent::Type::access;
      const std::string what = access
                                   ? concat(event.counts.shared ? "shared " : "global ",
                                            name_of(event.counts.kind), " ", std::popcount(event.access.mask))
                                   : event.call;
      lines.push_back(event.type == BlockEvent::Type::barrier
                          ? concat(event.column, " ", what)
                          : concat(event.column, ' ', event.warp, ' ', what));
    }
    return lines;
  }
};

// Columns count the events of a warp; the barrier stands behind the last event of all warps, and the warps
// begin again behind it. The numbers are the lanes that take part.
TEST_F(BlockTraceTest, events_stand_between_barriers) {
  trace("phases");
  run_phases(out_.data(), in_.data());
  const std::vector<std::string> expected = {
      "0 0 global read 32",   "0 1 global read 32",  // in[i]
      "1 0 shared write 32",  "1 1 global read 32",  // warp 1 also reads in[i - 32]
      "2 1 shared write 32",  "3 __syncthreads",     // warp 0 waits
      "4 0 shared read 32",   "4 1 shared read 32",  // words[63 - i]
      "5 0 shared read 16",   "5 1 shared read 16",  // odd lanes
      "6 0 __shfl_xor_sync",  "6 1 __shfl_xor_sync",  "7 0 __shfl_xor_sync",  "7 1 __shfl_xor_sync",
      "8 0 __shfl_xor_sync",  "8 1 __shfl_xor_sync",  "9 0 __shfl_xor_sync",  "9 1 __shfl_xor_sync",
      "10 0 __shfl_xor_sync", "10 1 __shfl_xor_sync", "11 0 global write 32", "11 1 global write 32"};
  EXPECT_EQ(listed(), expected);
  EXPECT_EQ(profiler_.block_trace()->total_events(), expected.size());
}

// What the page shows is what the report counts: of a launch of one block, the sums by instruction are equal.
TEST_F(BlockTraceTest, its_requests_are_those_of_the_report) {
  trace("phases");
  run_phases(out_.data(), in_.data());
  std::map<Instruction, AccessCounts> sums;
  for (const BlockEvent& event : events()) {
    if (event.type != BlockEvent::Type::access) continue;
    const auto [sum, is_new] = sums.try_emplace(event.instruction, event.counts);
    if (!is_new) sum->second.add(event.counts);
  }
  ASSERT_EQ(sums.size(), kernel().accesses.size());
  for (const auto& [access, counts] : kernel().accesses) {
    const AccessCounts& sum = sums.at(access.first);
    EXPECT_EQ(sum.requests, counts.requests);
    EXPECT_EQ(sum.lanes, counts.lanes);
    EXPECT_EQ(sum.existing_lanes, counts.existing_lanes);
    EXPECT_EQ(sum.sectors, counts.sectors);
    EXPECT_EQ(sum.ideal_sectors, counts.ideal_sectors);
    EXPECT_EQ(sum.wavefronts, counts.wavefronts);
    EXPECT_EQ(sum.ideal_wavefronts, counts.ideal_wavefronts);
  }
}

// Lane i does i rounds. The requests of a round follow those of the round before.
TEST_F(BlockTraceTest, a_loop_is_in_the_order_of_its_lanes) {
  trace("loop");
  run_loop(out_.data(), in_.data());
  const std::vector<BlockEvent> all = events();
  ASSERT_EQ(all.size(), 32U);
  for (unsigned round = 0; round < 31; ++round) {
    EXPECT_EQ(all[round].column, round);
    EXPECT_EQ(std::popcount(all[round].access.mask), static_cast<int>(31 - round));
  }
  EXPECT_EQ(all[31].counts.kind, Kind::write);
}

TEST_F(BlockTraceTest, a_chosen_launch_and_block) {
  trace("same_place:1:2");
  run_same_place(in_.data(), 3);
  EXPECT_FALSE(profiler_.block_trace()->found());
  run_same_place(out_.data(), 3);
  run_same_place(in_.data(), 3);
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(profiler_.block_trace()->index().x, 2U);
  const Json json = json_of(*profiler_.block_trace(), summary_of(profiler_.profile()));
  EXPECT_EQ(json["launch"], 1);
  EXPECT_EQ(json["block"], 2);
  EXPECT_EQ(json["events"][0]["argument"], 1);
  EXPECT_EQ(json["events"][0]["first"], 0);
}

// The columns begin with 2, 2, 1, 1 and 2 events: at most 7 events are four columns.
TEST_F(BlockTraceTest, a_long_block_is_cut_off) {
  trace("phases", 7);
  run_phases(out_.data(), in_.data());
  const Json json = json_of(*profiler_.block_trace(), summary_of(profiler_.profile()));
  EXPECT_EQ(json["events_total"], 22);
  EXPECT_EQ(json["events_shown"], 6);
  EXPECT_EQ(json["events"].size(), 6U);
  EXPECT_NE(block_page_of(json).find("This page has the first 6 of 22 events."), std::string::npos);
}

// The lines of the source, and the elements of shared memory, that the events name.
TEST_F(BlockTraceTest, names_lines_and_arrays) {
  trace("phases");
  run_phases(out_.data(), in_.data());
  const Json json = json_of(*profiler_.block_trace(), summary_of(profiler_.profile()));
  const Json& write = json["events"][2];
  EXPECT_EQ(write["kind"], "write");
  EXPECT_EQ(write["first"], 0);
  EXPECT_EQ(write["stride"], 4);
  EXPECT_EQ(json["shared_arrays"][0]["name"], "words");
  const Json& line = json["places"][write["place"].get<std::size_t>()][0];
  EXPECT_EQ(line["file"], "tests/emulation/profile/patterns.cpp");
  const Json& excerpt = json["source"][0];
  const auto index = line["line"].get<std::size_t>() - excerpt["first"].get<std::size_t>();
  EXPECT_EQ(excerpt["lines"].at(index), "  words[i] = value;");
  // The first shuffle exchanges lanes 16 apart.
  const Json& shuffle = json["events"][10];
  EXPECT_EQ(shuffle["from_lanes"][0], 16);
  EXPECT_EQ(shuffle["from_lanes"][17], 1);
}

TEST_F(BlockTraceTest, refuses_what_does_not_run) {
  EXPECT_EQ(refusal([] { parsed_block_choice(":1:2"); }),
            "--emulator-block: expected KERNEL[:LAUNCH[:BLOCK]], got \":1:2\"");
  trace("phases:0:5");
  EXPECT_EQ(refusal([&] { run_phases(out_.data(), in_.data()); }),
            "--emulator-block: launch 0 of phases has 1 block (0), got block 5");
  trace("phases:3");
  run_phases(out_.data(), in_.data());
  EXPECT_EQ(refusal([&] { profiler_.block_trace()->check_found(profiler_.profile()); }),
            "--emulator-block: phases had 1 launch (0), got launch 3");
  trace("phase");
  EXPECT_EQ(refusal([&] { profiler_.block_trace()->check_found(profiler_.profile()); }),
            "--emulator-block: no kernel \"phase\" was launched; launched were phases");
}

TEST_F(BlockTraceTest, names_kernels_with_and_without_template_arguments) {
  const BlockChoice all = parsed_block_choice("sum_kernel:12"),
                    one = parsed_block_choice("sum_kernel<a::b, 4>:1:2");
  EXPECT_TRUE(all.names("sum_kernel<float, 4>"));
  EXPECT_TRUE(all.names("sum_kernel"));
  EXPECT_FALSE(all.names("sum_kernels"));
  EXPECT_EQ(all.launch, 12U);
  EXPECT_EQ(all.block, 0U);
  EXPECT_TRUE(one.names("sum_kernel<a::b, 4>"));
  EXPECT_FALSE(one.names("sum_kernel<float, 4>"));
  EXPECT_EQ(one.launch, 1U);
  EXPECT_EQ(one.block, 2U);
}

}  // namespace
}  // namespace stagegpt::test
