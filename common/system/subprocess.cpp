#include "common/system/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sstream>

#include "common/base/error.h"
#include "common/io/file.h"
#include "common/system/stop_signals.h"

extern "C" char** environ;  // NOLINT: POSIX has no header for it

namespace stagegpt {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kGraceSeconds = 5;
constexpr int kTickMilliseconds = 100;

struct Pipe {
  FileDescriptor read_end, write_end;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(concat("no pipe: ", std::strerror(errno)));
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Our own environment with what is added.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(added, [&](const auto& entry) { return entry.first == name; })) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : added) all.push_back(concat(name, '=', value));
  return all;
}

// What the child does between fork and exec, without allocating memory or taking a lock.
struct Start {
  const char* program;
  char* const* argv;
  char* const* environment;
  const char* directory;  // nullptr: stay
  int input, output, errors, failure;
  pid_t parent;

  [[noreturn]] void run() const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // the parent has died before prctl()
    for (const int signal : kSignalsOfSchedulers) std::signal(signal, SIG_DFL);
    for (const int signal : {SIGINT, SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
    const bool ready = dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
                       dup2(errors, STDERR_FILENO) >= 0 && (directory == nullptr || chdir(directory) == 0);
    if (ready) execve(program, argv, environment);
    const int why = errno;
    const ssize_t written = write(failure, &why, sizeof why);
    _exit(written == sizeof why ? 127 : 126);
  }
};

// The process that started us may have ignored SIGCHLD, and we inherit that: children leave no exit code
// then.
void stop_ignoring_sigchld() {
  struct sigaction action {};
  if (sigaction(SIGCHLD, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
    std::signal(SIGCHLD, SIG_DFL);
  }
}

// A program that has been started, and its output.
class Child {
 public:
  Child(const Subprocess& subprocess, const fs::path& program);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  SubprocessResult wait();

 private:
  void start(const fs::path& program);
  // Waits for output for a short time. False when no more output can come.
  bool read_some();
  bool read_from(int stream);
  void end_if_asked();
  bool has_ended();

  const Subprocess& subprocess_;
  std::array<Pipe, 2> pipes_;  // standard output and standard error
  std::array<bool, 2> open_ = {true, true};
  pid_t pid_ = -1;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> asked_to_end_;
  bool killed_ = false, ended_ = false;
  SubprocessResult result_;
};

Child::Child(const Subprocess& subprocess, const fs::path& program) : subprocess_(subprocess) {
  start(program);
  for (Pipe& pipe : pipes_) pipe.write_end = FileDescriptor();
}

Child::~Child() {
  if (pid_ < 0 || has_ended()) return;
  kill(-pid_, SIGKILL);  // wait() has thrown
  waitpid(pid_, nullptr, 0);
}

void Child::start(const fs::path& program) {
  const std::vector<std::string> environment = environment_with(subprocess_.environment);
  const std::vector<char*> argv = pointers(subprocess_.argv), variables = pointers(environment);
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe failure;
  const Start start{.program = program.c_str(),
                    .argv = argv.data(),
                    .environment = variables.data(),
                    .directory = subprocess_.directory.empty() ? nullptr : subprocess_.directory.c_str(),
                    .input = nothing.get(),
                    .output = pipes_[0].write_end.get(),
                    .errors = pipes_[1].write_end.get(),
                    .failure = failure.write_end.get(),
                    .parent = getpid()};
  stop_ignoring_sigchld();
  pid_ = fork();
  if (pid_ == 0) start.run();
  if (pid_ < 0) throw std::runtime_error(concat("cannot start ", program, ": ", std::strerror(errno)));
  setpgid(pid_, pid_);  // as the child does: either may run first
  failure.write_end = FileDescriptor();
  int why = 0;
  ssize_t n = 0;
  do n = read(failure.read_end.get(), &why, sizeof why);
  while (n < 0 && errno == EINTR);
  if (n == sizeof why) {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    throw std::runtime_error(concat("cannot start ", program, ": ", std::strerror(why)));
  }
}

bool Child::read_from(int stream) {
  char block[1 << 14];
  const auto at = static_cast<std::size_t>(stream);
  const ssize_t n = read(pipes_[at].read_end.get(), block, sizeof block);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (n <= 0) return open_[at] = false;
  const std::string_view text(block, static_cast<std::size_t>(n));
  (stream == 0 ? result_.output : result_.errors) += text;
  if (stream == 1 && subprocess_.on_errors) subprocess_.on_errors(text);
  return true;
}

bool Child::read_some() {
  // Before reading: all that a program wrote until its end is in the pipes then.
  const bool last = has_ended();
  std::array<pollfd, 2> wanted;
  for (std::size_t i = 0; i < 2; ++i) {
    wanted[i] = {open_[i] ? pipes_[i].read_end.get() : -1, POLLIN, 0};
  }
  const int ready = poll(wanted.data(), wanted.size(), last ? 0 : kTickMilliseconds);
  if (ready > 0) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (wanted[i].revents != 0) read_from(static_cast<int>(i));
    }
    return open_[0] || open_[1];
  }
  if (ready < 0 && errno == EINTR) return true;
  // A process that the program has left behind may hold the pipes open.
  return !last && (open_[0] || open_[1]);
}

bool Child::has_ended() {
  if (ended_) return true;
  int status = 0;
  const pid_t waited = waitpid(pid_, &status, WNOHANG);
  ended_ = waited == pid_ || (waited < 0 && errno == ECHILD);  // somebody else may have waited for it
  if (waited == pid_) {
    constexpr int kSignalled = 128;
    result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  }
  return ended_;
}

void Child::end_if_asked() {
  const Clock::time_point now = Clock::now();
  if (!asked_to_end_) {
    result_.timed_out =
        subprocess_.timeout_seconds && seconds_between(start_, now) > *subprocess_.timeout_seconds;
    result_.cancelled = subprocess_.cancelled && subprocess_.cancelled();
    if (!result_.timed_out && !result_.cancelled) return;
    asked_to_end_ = now;
    kill(-pid_, SIGTERM);
  } else if (!killed_ && seconds_between(*asked_to_end_, now) > kGraceSeconds) {
    killed_ = true;
    kill(-pid_, SIGKILL);
  }
}

SubprocessResult Child::wait() {
  while (read_some()) end_if_asked();
  while (!has_ended()) {  // it may close its output before it ends
    end_if_asked();
    poll(nullptr, 0, kTickMilliseconds / 10);
  }
  result_.seconds = seconds_between(start_, Clock::now());
  return std::move(result_);
}

bool is_plain(std::string_view argument) {
  constexpr std::string_view kPlain = "_-+=./,:@%^";
  return !argument.empty() && std::ranges::all_of(argument, [&](unsigned char c) {
    return std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  });
}

}  // namespace

SubprocessResult run_subprocess(const Subprocess& subprocess) {
  check(!subprocess.argv.empty(), "no program");
  const std::optional<fs::path> program = find_program(subprocess.argv.front());
  if (!program) throw std::runtime_error(concat("cannot start ", subprocess.argv.front(), ": not found"));
  return Child(subprocess, fs::absolute(*program)).wait();  // it may run in another directory
}

std::optional<fs::path> find_program(const std::string& name) {
  const auto is_program = [](const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != name.npos) return is_program(name) ? std::optional<fs::path>(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "");
  for (std::string directory; std::getline(directories, directory, ':');) {
    const fs::path found = (directory.empty() ? fs::path(".") : fs::path(directory)) / name;
    if (is_program(found)) return found;
  }
  return std::nullopt;
}

fs::path own_directory() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string last_lines(std::string_view text, std::size_t count) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < count) {
    const std::size_t line_break = text.rfind('\n');
    const std::string_view line = line_break == text.npos ? text : text.substr(line_break + 1);
    if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back(line);
    text = line_break == text.npos ? "" : text.substr(0, line_break);
  }
  std::string out;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!out.empty()) out += '\n';
    out += *line;
  }
  return out;
}

std::string shell_line(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (is_plain(argument)) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char c : argument) c == '\'' ? line += "'\\''" : line += c;
    line += '\'';
  }
  return line;
}

}  // namespace stagegpt
