#include "tools/compare/launcher.h"

#include <unistd.h>

#include <sstream>

#include "common/base/error.h"
#include "common/system/subprocess.h"

namespace stagegpt::compare {
namespace {

constexpr double kVersionSeconds = 20;

}  // namespace

Launcher::Launcher(const std::optional<std::string>& command) {
  std::istringstream words(command.value_or("mpirun"));
  for (std::string word; words >> word;) command_.push_back(word);
  if (command_.empty()) user_error("--mpirun: expected a command, got \"\"");
  if (!find_program(command_.front())) {
    if (command) user_error("--mpirun: ", command_.front(), " is not found");
    why_not_ =
        "mpirun is not found; install Open MPI with ./scripts/setup.sh, or name another launcher with "
        "--mpirun";
    return;
  }
  const SubprocessResult told = run_subprocess({.argv = {command_.front(), "--version"},
                                                .environment = environment(),
                                                .timeout_seconds = kVersionSeconds});
  version_ = told.output.substr(0, told.output.find('\n'));
  const bool open_mpi =
      version_.find("Open MPI") != version_.npos || version_.find("OpenRTE") != version_.npos;
  starts_here_ = !command;
  if (!command && open_mpi) command_.insert(command_.end(), {"--oversubscribe", "--bind-to", "none"});
}

std::string before_launcher(const std::string& errors) {
  const std::size_t dashes = errors.find(std::string(40, '-'));
  const std::string before = errors.substr(0, dashes);
  return last_lines(before, 1).empty() ? errors : before;
}

std::string error_message(const std::string& errors) {
  const std::string messages = before_launcher(errors);
  std::istringstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name_end = line.find(": ");
    if (name_end != line.npos && line.substr(0, name_end).find("_train") != line.npos &&
        line.find(' ') == name_end + 1) {
      return line.substr(name_end + 2);
    }
  }
  return last_lines(messages, 1);
}

std::vector<std::string> Launcher::words(std::int64_t ranks) const {
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"-np", std::to_string(ranks)});
  return words;
}

std::vector<std::pair<std::string, std::string>> Launcher::environment() const {
  if (geteuid() != 0) return {};
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
}

}  // namespace stagegpt::compare
