// Small training runs of the programs, and what their run directories tell.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace stagegpt::test {

using Arguments = std::vector<std::string>;

class TrainedRuns : public testing::Test {
 protected:
  void SetUp() override;

  // Flags of a run of some thirty steps, with those of `more` instead of its own.
  static Arguments small(const std::string& run, const Arguments& more = {});
  // Runs stage 0's program, which is expected to exit with 0.
  ProgramResult stage0(const std::string& job, const Arguments& arguments) const;
  static ProgramResult expect_done(ProgramResult result);

  // Of the whole checkpoint.
  std::string hash_after(int steps, const std::string& run) const;
  // A field of all lines of metrics.jsonl that have it.
  std::vector<double> metric(const std::string& run, const char* field) const;
  // Losses and norms that differ by no more than 1e-4.
  void expect_same_curves(const std::string& run, const std::string& other) const;

  // Traces of so many steps in which no tensor diverges.
  void expect_same_traces(const std::string& run, const std::string& reference, std::size_t steps) const;

  ScratchDirectory directory_;
};

}  // namespace stagegpt::test
