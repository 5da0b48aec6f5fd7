#include "common/system/stop_signals.h"

#include <atomic>

namespace stagegpt {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

extern "C" void note_signal(int) { stop_requested = true; }

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int) { interrupted = 1; }

}  // namespace

StopSignals::StopSignals(std::initializer_list<int> signals) {
  for (const int signal : signals) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    // A second Ctrl-C ends the process at once. A scheduler may send its signal more than once.
    action.sa_flags = SA_RESTART | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigemptyset(&action.sa_mask);
    replaced_.push_back({signal, {}});
    struct sigaction& before = replaced_.back().before;
    sigaction(signal, &action, &before);
    // A signal that was ignored stays ignored: nohup, or a shell's background job.
    if (before.sa_handler == SIG_IGN) sigaction(signal, &before, nullptr);
  }
}

StopSignals::~StopSignals() {
  // The process is about to exit with 75: another signal must not end it otherwise.
  if (stop_requested) return;
  for (const Replaced& replaced : replaced_) sigaction(replaced.signal, &replaced.before, nullptr);
}

bool StopSignals::requested() { return stop_requested; }

void StopSignals::throw_if_requested() {
  if (requested()) throw Stopped();
}

TextInterrupt::TextInterrupt() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
}

TextInterrupt::~TextInterrupt() { sigaction(SIGINT, &before_, nullptr); }

bool TextInterrupt::requested() { return interrupted != 0; }

}  // namespace stagegpt
