// A comparison on a busy machine reports the load.
#include <gtest/gtest.h>

#include "tests/compare/made_comparison.h"
#include "tools/compare/report_parts.h"

namespace stagegpt::compare::test {
namespace {

MachineLoad load(double others) { return {.others_share = others, .cores = 2, .threads = 2, .seconds = 3}; }

Comparison busy_comparison() {
  Comparison comparison = made_comparison();
  comparison.entries[0].trials[1].load = load(0.05);
  comparison.entries[1].trials[0].load = load(0.61);
  comparison.entries[2].trials[1].load = load(0.3);
  check(comparison);
  return comparison;
}

// On a GPU, each rank counts as one thread.
TEST(BusyMachine, CountsTheThreadsThatCompute) {
  Contestant two = contestant(3, 2, 4);
  EXPECT_EQ(two.computing_threads(), 8);
  two.program.hardware = Hardware::gpu;
  EXPECT_EQ(two.computing_threads(), 2);
}

// Runs of the reproducible pass are not timed, so they are not counted.
TEST(BusyMachine, IsThatOfTimedRuns) {
  Comparison comparison = busy_comparison();
  comparison.entries[1].contestant.timed = false;
  EXPECT_EQ(busy_runs(comparison).busy, 1);
  EXPECT_EQ(busy_runs(comparison).runs, 4);
  EXPECT_EQ(busy_runs(comparison).busiest->others_share, 0.3);
}

// The busiest run is the one that missed most of what its threads need; another may have seen a higher load.
TEST(BusyMachine, TellsTheHighestLoadOfTheRunsThatKnowIt) {
  Comparison comparison = busy_comparison();
  comparison.entries[0].trials[0].load =
      MachineLoad{.others_share = 0.9, .cores = 8, .threads = 1, .seconds = 1};
  comparison.entries[0].trials[1].load.reset();
  const BusyRuns all = busy_runs(comparison);
  EXPECT_EQ(all.runs, 6);
  EXPECT_EQ(all.known, 3);
  EXPECT_EQ(all.most_used, 0.9);
  EXPECT_NE(
      terminal_report(comparison).find("of the 3 runs long enough to tell: other programs used up to 90.0 %"),
      std::string::npos)
      << terminal_report(comparison);
}

}  // namespace
}  // namespace stagegpt::compare::test
