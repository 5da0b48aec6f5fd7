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
  // The first is a path, or a name that is searched for in PATH.
  std::vector<std::string> argv;
  // Added to our own environment, in place of variables of the same name.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::filesystem::path directory = {};        // to run in; our own where it is empty
  std::optional<double> timeout_seconds = {};  // nothing: no limit
  // Asked several times a second; the program is ended when it returns true.
  std::function<bool()> cancelled = {};
  // Called with what the program writes to standard error, as it arrives.
  std::function<void(std::string_view)> on_errors = {};
};

struct SubprocessResult {
  int exit_code = -1;  // 128 + the number of a signal that ended it; -1 where it is not known
  bool timed_out = false, cancelled = false;
  double seconds = 0;
  std::string output, errors;  // what it wrote to standard output and to standard error
};

// Runs a program with an empty standard input. It has a process group of its own, so that Ctrl-C reaches this
// process only. It is ended by SIGTERM, and by SIGKILL five seconds later; it gets SIGTERM too if this
// process dies. If SIGCHLD is ignored, which would hide exit codes, its default is restored. Throws
// std::runtime_error, naming the program, when it cannot be started.
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
