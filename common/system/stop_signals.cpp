#include "common/system/stop_signals.h"

#include <atomic>

namespace stagegpt {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

extern "C" void note_signal(int) { stop_requested = true; }

}  // namespace

StopSignals::StopSignals(std::initializer_list<int> signals) {
  for (const int signal : signals) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    // Whoever presses Ctrl-C again does not want to wait. A scheduler may repeat itself.
    action.sa_flags = SA_RESTART | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigemptyset(&action.sa_mask);
    replaced_.push_back({signal, {}});
    struct sigaction& before = replaced_.back().before;
    sigaction(signal, &action, &before);
    // Whoever started the program wants it to ignore the signal: nohup, or a shell's background job.
    if (before.sa_handler == SIG_IGN) sigaction(signal, &before, nullptr);
  }
}

StopSignals::~StopSignals() {
  // On its way to exit 75: one that comes again must not end the process in another way.
  if (stop_requested) return;
  for (const Replaced& replaced : replaced_) sigaction(replaced.signal, &replaced.before, nullptr);
}

bool StopSignals::requested() { return stop_requested; }

void StopSignals::throw_if_requested() {
  if (requested()) throw Stopped();
}

}  // namespace stagegpt
