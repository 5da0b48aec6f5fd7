#include "common/system/openmp_environment.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/system/stop_signals.h"

namespace stagegpt {
namespace {

// Blocked signals stay pending through exec; what a handler has noted does not.
void hold_signals(bool hold) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignalsOfSchedulers) sigaddset(&signals, signal);
  sigaddset(&signals, SIGINT);
  sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &signals, nullptr);
}

void execute_again() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::ifstream command_line("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(command_line, argument, '\0');) arguments.push_back(argument);
  if (error || arguments.empty()) return;  // without /proc: threads spin longer

  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
  hold_signals(true);
  if (!StopSignals::requested()) execv(program.c_str(), argv.data());
}

}  // namespace

void restart_with_short_spins() {
  // OpenMP may have bound this thread to one core already, which a new process would inherit.
  constexpr const char* kBound[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  if (!is_set("GOMP_SPINCOUNT") && !is_set("OMP_WAIT_POLICY") && std::ranges::none_of(kBound, is_set))
    execute_again();
  hold_signals(false);
}

std::optional<int> threads_of_environment() {
  constexpr int kMost = 1024;
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  const long threads = std::strtol(text, &end, 10);
  if (end == text || (*end != '\0' && *end != ',') || threads < 1 || threads > kMost) return std::nullopt;
  return static_cast<int>(threads);
}

}  // namespace stagegpt
