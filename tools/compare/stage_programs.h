// Finds the stages that this machine can run, and their programs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/contestant.h"
#include "tools/compare/launcher.h"

namespace stagegpt::compare {

struct StageChoice {
  std::filesystem::path programs;                   // the directory of stageN_train
  std::optional<std::filesystem::path> against;     // that of another build, the reference
  std::optional<std::vector<std::int64_t>> stages;  // those of --stages; else all that can run
  bool emulated = false;                            // whether to use the emulator even if there is a GPU
};

struct FoundStages {
  std::vector<StageProgram> stages;
  std::vector<LeftOut> left_out;  // stages that cannot run, or that run on the emulator instead of a GPU
};

// Starts each program once, to get its flags. Throws UserError if a stage of --stages cannot run.
FoundStages find_stages(const StageChoice& choice, const Launcher& launcher);

// The command line that starts a stage's program, without its flags.
std::vector<std::string> start_words(const StageProgram& program, std::int64_t ranks,
                                     const Launcher& launcher);

}  // namespace stagegpt::compare
