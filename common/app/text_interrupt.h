// Ctrl-C while a text is written ends that text, not the program.
#pragma once

#include <csignal>

namespace stagegpt {

// While it lives SIGINT is noted; a second one ends the program at once.
class TextInterrupt {
 public:
  TextInterrupt();
  ~TextInterrupt();
  TextInterrupt(const TextInterrupt&) = delete;
  TextInterrupt& operator=(const TextInterrupt&) = delete;

  // Whether it has come since the last object was made.
  static bool requested();

 private:
  struct sigaction before_ {};
};

}  // namespace stagegpt
