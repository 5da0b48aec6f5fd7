// Signals that ask a program to stop: those that schedulers send before a job's end, SIGHUP of a terminal
// that is gone, and SIGINT, Ctrl-C. A training run stops after its step, with a checkpoint; work before the
// first step is given up.
#pragma once

#include <csignal>
#include <exception>
#include <initializer_list>
#include <vector>

namespace stagegpt {

// SIGXCPU: the limit of processor time is near. SIGPWR: the power is failing.
inline constexpr std::initializer_list<int> kSignalsOfSchedulers = {SIGUSR1, SIGUSR2, SIGTERM,
                                                                    SIGHUP,  SIGXCPU, SIGPWR};

// The exit code of a program that a signal has stopped: EX_TEMPFAIL of sysexits.h, "try again".
inline constexpr int kExitStopped = 75;

// Thrown out of a long job that a signal has stopped. It is no error: handlers of std::runtime_error let it
// pass.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override {
    return "stopped by a signal before the first step; nothing was saved";
  }
};

// While an object lives, the signals set requested() instead of ending the process. Once one has come that
// stays so: what is left to do is to save and to exit. A second SIGINT ends the process at once.
class StopSignals {
 public:
  explicit StopSignals(std::initializer_list<int> signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one of them has come, to any object of this class.
  static bool requested();
  // Throws Stopped where one has. For loops of long jobs before the first step, on any thread, at least every
  // 0.1 s. Where several ranks work, such a loop stands inside agree() or on_root(), so that all of them
  // stop.
  static void throw_if_requested();

 private:
  struct Replaced {
    int signal;
    struct sigaction before;
  };
  std::vector<Replaced> replaced_;
};

// ---- Ctrl-C while a text is written: it ends that text, not the program ----

// While an object lives, the first SIGINT only sets requested(); a second one ends the program at once.
class TextInterrupt {
 public:
  TextInterrupt();
  ~TextInterrupt();
  TextInterrupt(const TextInterrupt&) = delete;
  TextInterrupt& operator=(const TextInterrupt&) = delete;

  // Whether SIGINT has come since the last object was made.
  static bool requested();

 private:
  struct sigaction before_ {};
};

}  // namespace stagegpt
