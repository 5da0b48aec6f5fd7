// Finds the stages that this machine can run, and their programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/compare/contestant.h"

namespace stagegpt::compare {

// Starts programs with several ranks: by mpirun, or by the command of --mpirun.
class Launcher {
 public:
  // `command`: that of --mpirun, split at spaces; without it, mpirun is used. Open MPI's mpirun gets flags
  // that let ranks share cores, because the experiment determines their number.
  explicit Launcher(const std::optional<std::string>& command);

  // Why programs cannot be started; empty if they can.
  const std::string& why_not() const { return why_not_; }
  // The first line of `mpirun --version`.
  const std::string& version() const { return version_; }
  // Whether ranks are descendants of this process, on this host. False for the command of --mpirun: unknown.
  bool starts_here() const { return starts_here_; }
  // The command line up to the program.
  std::vector<std::string> words(std::int64_t ranks) const;
  // The two variables that allow Open MPI to run as root, for containers.
  std::vector<std::pair<std::string, std::string>> environment() const;

 private:
  std::vector<std::string> command_;
  std::string why_not_, version_;
  bool starts_here_ = false;
};

// Messages without the final ones of mpirun, which are between lines of dashes.
std::string before_launcher(const std::string& errors);
// The error message of a program, without the program's name.
std::string error_message(const std::string& errors);

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
