// From what a user asks for to a comparison that is done.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/comparison.h"
#include "tools/compare/report_directory.h"
#include "tools/compare/stage_programs.h"

namespace stagegpt::compare {

struct CompareOptions {
  std::filesystem::path output;
  bool overwrite = false;
  std::string title, author;
  std::vector<std::string> command;  // ours, for the report
  StageChoice choice;
  std::optional<std::string> mpirun;
  Experiment experiment;       // with its flags
  double timeout_seconds = 0;  // of one run; 0: none
  std::function<bool()> cancelled;
};

// Runs everything, with progress on standard error, and writes the reports, after each run and at the end.
// When it is cancelled, what has been done is reported. Throws UserError where the input is at fault, before
// anything is written.
Comparison compare(const CompareOptions& options);

}  // namespace stagegpt::compare
