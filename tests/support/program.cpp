#include "tests/support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/base/error.h"

namespace stagegpt::test {
namespace {

// Waits for the text, then sends the signals. Stops waiting if the program ends.
void send_signals(pid_t child, const std::filesystem::path& errors, const RunOptions& options) {
  if (options.signals.empty() && !options.instead) return;
  const auto ended = [&] {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == child;
  };
  while (!ended() && read_bytes(errors).find(options.signal_after) == std::string::npos) usleep(1000);
  if (options.instead) options.instead(child);
  for (const int signal : options.signals) {
    kill(child, signal);
    usleep(1000);  // two pending signals of the same number are merged
  }
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::filesystem::path& directory, const RunOptions& options) {
  const ScratchDirectory captured;
  const bool capture = options.output_to.empty();
  const std::filesystem::path output = capture ? captured.path() / "output" : options.output_to;
  const std::filesystem::path errors = captured.path() / "errors";
  const std::string path = std::filesystem::path(STAGEGPT_BIN_DIR) / program;
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = fork();
  check(child >= 0, "fork failed");
  if (child == 0) {
    unsetenv("OMP_WAIT_POLICY");  // set by ctest, not by users
    // A background job of a shell ignores SIGINT, and its child processes would inherit this.
    for (const int signal : options.signals) std::signal(signal, SIG_DFL);
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    constexpr int kMode = 0600, kNotStarted = 127;
    const int out = open(output.c_str(), O_WRONLY | O_CREAT, kMode),
              err = open(errors.c_str(), O_WRONLY | O_CREAT, kMode);
    if (const std::filesystem::path& input = options.input_from; !input.empty())
      dup2(open(input.c_str(), O_RDONLY), STDIN_FILENO);
    if (chdir(directory.c_str()) == 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0) {
      execv(path.c_str(), argv.data());
    }
    _exit(kNotStarted);
  }
  send_signals(child, errors, options);
  int status = 0;
  check(waitpid(child, &status, 0) == child, "waitpid failed");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, capture ? read_bytes(output) : "",
          read_bytes(errors)};
}

ProgramResult expect_done(ProgramResult result) {
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return result;
}

void expect_said(const ProgramResult& result, const std::string& text) {
  EXPECT_NE(result.errors.find(text), std::string::npos) << text << "\nis not in\n" << result.errors;
}

void expect_failure(const ProgramResult& result, int exit_code, const std::string& text) {
  EXPECT_EQ(result.exit_code, exit_code) << result.errors;
  expect_said(result, text);
}

std::vector<std::string> words(const std::string& command_line) {
  std::istringstream in(command_line);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> with_flags(std::vector<std::string> flags, const std::vector<std::string>& more) {
  for (std::size_t i = 0; i < more.size(); ++i) {
    const auto there = std::ranges::find(flags, more[i]);
    if (more[i].starts_with("--") && there != flags.end()) {
      *(there + 1) = more[++i];
    } else {
      flags.push_back(more[i]);
    }
  }
  return flags;
}

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "stagegpt.XXXXXX").string();
  check(mkdtemp(pattern.data()) != nullptr, "mkdtemp failed");
  path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() { std::filesystem::remove_all(path_); }

std::string ScratchDirectory::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(path_ / name, std::ios::binary) << bytes;
  return path_ / name;
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace stagegpt::test
