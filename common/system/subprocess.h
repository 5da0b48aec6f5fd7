// Running another program and waiting for it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagegpt {

struct Subprocess {
  // The first is a path, or a name that is looked for as a shell does.
  std::vector<std::string> argv;
  // Added to our own environment, in place of variables of the same name.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::filesystem::path directory = {};        // to run in; our own where it is empty
  std::optional<double> timeout_seconds = {};  // nothing: it may take as long as it likes
  // Asked several times a second; when it says true the program is ended.
  std::function<bool()> cancelled = {};
  // Hears what the program writes to standard error as it comes.
  std::function<void(std::string_view)> on_errors = {};
};

struct SubprocessResult {
  int exit_code = -1;  // 128 + the number of a signal that ended it; -1 where it is not known
  bool timed_out = false, cancelled = false;
  double seconds = 0;
  std::string output, errors;  // what it wrote to standard output and to standard error
};

// Runs a program with nothing on its standard input. It has a process group of its own: Ctrl-C reaches us
// alone. To be ended it gets SIGTERM, and SIGKILL five seconds later; if we die, it gets SIGTERM. Where
// SIGCHLD is ignored that is ended: there would be no exit code. Throws std::runtime_error, naming the
// program, when it cannot be started.
SubprocessResult run_subprocess(const Subprocess& subprocess);

// The path of an executable in one of the directories of PATH; of a name with a slash, that file.
std::optional<std::filesystem::path> find_program(const std::string& name);

// The directory of the program that is running.
std::filesystem::path own_directory();

// The last `count` lines that are not empty, with line breaks between them.
std::string last_lines(std::string_view text, std::size_t count);

// Arguments as one line for a shell, quoted where they must be.
std::string shell_line(const std::vector<std::string>& arguments);

}  // namespace stagegpt
