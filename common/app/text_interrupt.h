// Ctrl-C while a text is written ends that text, not the program.
#pragma once

#include <csignal>

namespace stagegpt {

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
