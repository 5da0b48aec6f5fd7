// A comparison: the experiment and its results, from which reports are written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tools/compare/checks.h"
#include "tools/compare/first_tensor.h"
#include "tools/compare/trial.h"

namespace stagegpt::compare {

struct Comparison {
  std::string title, author;
  std::vector<std::string> command;  // of compare_stages
  Json provenance;                   // what it ran on
  Json settings;                     // of the reference, as --print-config prints them
  std::string model, data;           // descriptions, as the reference prints them
  Experiment experiment;
  std::vector<Entry> entries;
  std::vector<LeftOut> left_out;
  std::vector<Check> checks;
  std::vector<FirstTensor> divergences;  // one per check; empty if the check has passed
  bool interrupted = false;
  double seconds = 0;

  const Entry& subject(const Check& check) const { return entries[check.subject]; }
  const Entry& reference(const Check& check) const { return entries[check.reference]; }
  bool failed() const;
  bool all_agree() const;
  // Whether all contestants ran and agree.
  bool passed() const { return !failed() && !interrupted && all_agree(); }
  // Whether any contestant is compared with another one.
  bool has_compared() const;
};

// The result in one sentence.
std::string verdict(const Comparison& comparison);
// Describes a check that has failed: the contestants, the step, the quantity and the difference.
std::string describe(const Comparison& comparison, const Check& check);

// The speed of a contestant.
struct Speed {
  std::size_t entry = 0;
  Spread tokens_per_second, step_ms;
  PhaseMs ms = {};                   // medians over trials
  std::optional<double> speed_up;    // relative to the reference
  std::optional<double> efficiency;  // per core or GPU, relative to the smallest number of ranks of the stage
  double communication_share = 0;    // of a step
  std::int64_t peak_memory_bytes = 0;
};

// The load by other programs during the timed runs, where it is known: a short run does not know it.
struct BusyRuns {
  std::int64_t runs = 0, known = 0, busy = 0;
  std::optional<MachineLoad> busiest;  // by MachineLoad::missing_share()
  double most_used = 0;                // by others, as a share of the cores
};
BusyRuns busy_runs(const Comparison& comparison);

// The speeds of all timed entries with trials. Speed-up is relative to the first one.
std::vector<Speed> speeds(const Comparison& comparison);

}  // namespace stagegpt::compare
