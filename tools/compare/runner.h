// Running contestants: the commands, and what comes of them.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/system/subprocess.h"
#include "tools/compare/checks.h"
#include "tools/compare/launcher.h"

namespace stagegpt::compare {

// The user does not want to wait.
struct Interrupted {};

class Runner {
 public:
  // Runs are put into `directory`, which is there.
  Runner(const Experiment& experiment, const std::vector<StageProgram>& stages, const Launcher& launcher,
         std::filesystem::path directory, double timeout_seconds, std::function<bool()> cancelled);

  // Sees that a contestant can begin, and returns what its program says of model, data and machine. Throws
  // UserError with its words where its flags are at fault, std::runtime_error where something else is.
  std::string look(const Contestant& contestant) const;
  // The settings of a contestant, as its program prints them.
  std::string settings(const Contestant& contestant) const;
  // Trains once, and adds what was measured to the entry, or why it failed. Of the run its metrics and
  // settings are kept, its checkpoints are not.
  void run(Entry& entry) const;
  // Trains once more, with more flags, for its traces. Returns the run's directory. Throws std::runtime_error
  // when it fails.
  std::filesystem::path run_again(const Contestant& contestant, const std::vector<std::string>& more) const;

 private:
  std::vector<std::string> command(const Contestant& contestant, const std::vector<std::string>& more) const;
  SubprocessResult start(const std::vector<std::string>& command) const;

  const Experiment& experiment_;
  std::set<std::string> all_flags_;  // that any of the stages knows
  const Launcher& launcher_;
  std::filesystem::path directory_;
  double timeout_seconds_;
  std::function<bool()> cancelled_;
};

}  // namespace stagegpt::compare
