// Runs a whole comparison.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/app/version.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report_directory.h"
#include "tools/compare/stage_programs.h"

namespace stagegpt::compare {

struct CompareOptions {
  std::filesystem::path output;
  bool overwrite = false;
  std::string title, author;
  std::vector<std::string> command;  // of compare_stages, for the report
  Version version;                   // of the programs
  StageChoice choice;
  std::optional<std::string> mpirun;
  Experiment experiment;       // including its flags
  bool timelines = true;       // records a few steps of each contestant
  double timeout_seconds = 0;  // of one run; 0: none
  std::function<bool()> cancelled;
};

// Runs all contestants, with progress on standard error, and writes the reports after each run and at the
// end. If it is cancelled, the completed runs are reported. Throws UserError for wrong input, before anything
// is written.
Comparison compare(const CompareOptions& options);

}  // namespace stagegpt::compare
