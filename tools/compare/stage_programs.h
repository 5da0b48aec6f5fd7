// Which stages this machine can run, and with which program.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/contestant.h"
#include "tools/compare/launcher.h"

namespace stagegpt::compare {

struct StageChoice {
  std::filesystem::path programs;                   // the folder of stageN_train
  std::optional<std::vector<std::int64_t>> stages;  // asked for; else all that can run
  bool emulated = false;                            // no GPU, though there is one
};

struct FoundStages {
  std::vector<StageProgram> stages;
  std::vector<LeftOut> left_out;  // stages that cannot run, and GPUs in whose place there is the emulator
};

// Starts each program once, for its flags. Throws UserError for a stage that was asked for and cannot run.
FoundStages find_stages(const StageChoice& choice, const Launcher& launcher);

// The words that start a stage's program.
std::vector<std::string> start_words(const StageProgram& program, std::int64_t ranks,
                                     const Launcher& launcher);

}  // namespace stagegpt::compare
