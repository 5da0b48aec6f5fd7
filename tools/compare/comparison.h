// A comparison: what was done, and what came out. Reports are made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "tools/compare/checks.h"
#include "tools/compare/first_tensor.h"
#include "tools/compare/statistics.h"

namespace stagegpt::compare {

struct Comparison {
  std::string title, author;
  std::vector<std::string> command;  // of compare_stages
  Json provenance;                   // what it ran on
  Json settings;                     // of the reference, as --print-config prints them
  std::string model, data;           // in words, as the reference says it
  Experiment experiment;
  std::vector<Entry> entries;
  std::vector<LeftOut> left_out;
  std::vector<Check> checks;
  std::vector<FirstTensor> divergences;  // of each check, where it has failed
  bool interrupted = false;
  double seconds = 0;

  const Entry& subject(const Check& check) const { return entries[check.subject]; }
  const Entry& reference(const Check& check) const { return entries[check.reference]; }
  bool failed() const;
  bool all_agree() const;
  // Whether everything ran, and all agree.
  bool passed() const { return !failed() && !interrupted && all_agree(); }
  // Whether any contestant stands beside another one, not only beside itself.
  bool has_compared() const;
};

// One sentence: what an instructor wants to know first.
std::string verdict(const Comparison& comparison);
// A sentence on a check that has failed: who, with whom, at which step, and by how much.
std::string describe(const Comparison& comparison, const Check& check);

// How fast a contestant was, beside others.
struct Speed {
  std::size_t entry = 0;
  Spread tokens_per_second, step_ms;
  PhaseMs ms = {};                   // medians over trials
  std::optional<double> speed_up;    // over the reference
  std::optional<double> efficiency;  // of its ranks, per core or GPU, beside the fewest of the same stage
  double communication_share = 0;    // of a step
  std::int64_t peak_memory_bytes = 0;
};

// How busy other programs kept the machine during the runs that are timed.
struct BusyRuns {
  std::int64_t runs = 0, busy = 0;
  std::optional<MachineLoad> busiest;  // of those that are known
};
BusyRuns busy_runs(const Comparison& comparison);

// Of all timed entries with trials. The reference of the speed-up is the first of them.
std::vector<Speed> speeds(const Comparison& comparison);

}  // namespace stagegpt::compare
