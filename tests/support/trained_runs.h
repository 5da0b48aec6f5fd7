// Small training runs of the programs, and the content of their run directories.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace stagegpt::test {

using Arguments = std::vector<std::string>;

// For small(): a run of four steps and nothing else, for the emulator.
inline const Arguments kFourSteps = {"--stop-after",   "4", "--batch-size",     "4",
                                     "--val-fraction", "0", "--max-new-tokens", "0"};

// For small(), in a run on the emulator. They divide among one to four ranks.
inline const Arguments kFewSequences = {"--batch-size", "12"};

class TrainedRuns : public testing::Test {
 protected:
  void SetUp() override;

  // Flags of a run of about thirty steps; those of `more` replace them.
  static Arguments small(const std::string& run, const Arguments& more = {});
  // Runs stage 0's program, and expects exit code 0.
  ProgramResult stage0(const std::string& job, const Arguments& arguments) const;
  // As expect_failure(), and that standard error contains `text` only once: ranks do not repeat each other.
  static void expect_told_once(const ProgramResult& result, int exit_code, const std::string& text);

  // Hash of the whole checkpoint.
  std::string hash_after(int steps, const std::string& run) const;
  // The values of a field in metrics.jsonl, from all lines that have it.
  std::vector<double> metric(const std::string& run, const char* field) const;
  // The largest relative difference of a loss of `run` from that of `other` at the same step.
  double largest_loss_difference(const std::string& run, const std::string& other) const;
  // Expects losses and gradient norms with a relative difference of at most 1e-4.
  void expect_same_curves(const std::string& run, const std::string& other) const;

  // Expects that the layers of `run`, trained with --watch-layers, have at every watched step the numbers of
  // those of `other`, each within `tolerance` of itself.
  void expect_same_layers(const std::string& run, const std::string& other, double tolerance) const;

  // Expects traces of `steps` steps in which no tensor diverges.
  void expect_same_traces(const std::string& run, const std::string& reference, std::size_t steps) const;

  ScratchDirectory directory_;
};

}  // namespace stagegpt::test
