// Runs contestants: builds their commands, and collects their results.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/system/subprocess.h"
#include "tools/compare/checks.h"
#include "tools/compare/stage_programs.h"

namespace stagegpt::compare {

// The directories of runs and profiles inside that of the report.
inline constexpr const char *kRuns = "runs", *kProfiles = "profiles";

// Thrown when the user has cancelled the comparison.
struct Interrupted {};

class Runner {
 public:
  // Runs are written to `directory`, which must exist.
  Runner(const Experiment& experiment, const std::vector<StageProgram>& stages, const Launcher& launcher,
         std::filesystem::path directory, double timeout_seconds, std::function<bool()> cancelled);

  // Checks that a contestant can start, and returns its program's messages about model, data and machine.
  // Throws UserError with the program's message if its flags are wrong, std::runtime_error for other errors.
  std::string dry_run(const Contestant& contestant) const;
  // The settings of a contestant, as its program prints them.
  std::string settings(const Contestant& contestant) const;
  // Trains once, and adds the result, or the reason of a failure, to the entry. Keeps the run's metrics and
  // settings, but not its checkpoints.
  void run(Entry& entry) const;
  // Trains again with additional flags, in runs/NAME-`purpose`. Returns the run's directory. Throws
  // std::runtime_error if it fails.
  std::filesystem::path run_again(const Contestant& contestant, const char* purpose,
                                  const std::vector<std::string>& more) const;
  // Trains a contestant that has a trial again, records a few steps after the warm-up in
  // profiles/NAME.json, and adds the timeline, or the reason why there is none, to the entry.
  void record(Entry& entry) const;

 private:
  std::vector<std::string> command(const Contestant& contestant, const std::vector<std::string>& more) const;
  SubprocessResult start(const std::vector<std::string>& command) const;

  const Experiment& experiment_;
  std::set<std::string> all_flags_;  // flags of any stage
  const Launcher& launcher_;
  std::filesystem::path directory_;
  double timeout_seconds_;
  std::function<bool()> cancelled_;
};

}  // namespace stagegpt::compare
