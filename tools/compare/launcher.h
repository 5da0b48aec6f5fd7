// Starts programs with several ranks: by mpirun, or by the command of --mpirun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stagegpt::compare {

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

}  // namespace stagegpt::compare
